"""Applications with causal order: events of several topics, and subscriptions that move."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from concordant.bus import Bus, Subscription
from concordant.causal.messages import Known
from concordant.causal.subscriber import Subscriber
from concordant.errors import UsageError
from concordant.net.cluster import Cluster, cluster_from
from concordant.net.known import Seal
from concordant.net.node import Node
from concordant.net.session import Given
from tests.ports import free_ports

NAMES = ("n1", "n2", "n3")
RUNNING: dict[str, Node] = {}


@asynccontextmanager
async def nodes(strategy: str) -> AsyncIterator[Cluster]:
    """Three nodes over TCP."""
    ports = free_ports(6)
    cluster = cluster_from(
        f'[cluster]\nname = "grid"\nstrategies = ["{strategy}"]\n'
        + "".join(
            f'[nodes.{name}]\ndoor = "127.0.0.1:{ports[2 * n]}"\n'
            f'address = "127.0.0.1:{ports[2 * n + 1]}"\n'
            for n, name in enumerate(NAMES)
        )
    )
    running = [Node(cluster, name) for name in NAMES]
    try:
        for node in running:
            await node.start()
            RUNNING[node.name] = node
        yield cluster
    finally:
        for node in running:
            await node.stop()


def context_of(name: str) -> dict[str, int]:
    """By topic: how much of it comes before what is published at a node."""
    assert RUNNING[name]._door is not None
    publisher = RUNNING[name]._door.inlet._feeds["causal"].publisher
    assert isinstance(publisher, Subscriber)
    return {topic: sum(row.values()) for topic, row in publisher.state.context.items()}


async def taken(found: Subscription, count: int) -> list[tuple[str, int]]:
    events = [(await anext(found)).events[0] for _ in range(count)]
    return [(event.topic, event.read("n")) for event in events]  # type: ignore[misc]


async def test_an_event_of_two_topics_is_delivered_once_to_whoever_holds_one() -> None:
    async with asyncio.timeout(30), Bus(strategies=["causal"]) as bus:
        both = bus.subscribe("North, South", order="causal")
        south = bus.subscribe("South", order="causal")
        async with both, south:
            await bus.publish("North", {"n": 1}, topics=["South"])
            await bus.publish("South", {"n": 2})
            assert await taken(both, 2) == [("North", 1), ("South", 2)]
            assert await taken(south, 2) == [("South", 1), ("South", 2)]


async def test_where_another_order_is_offered_an_event_has_one_topic() -> None:
    async with asyncio.timeout(30), Bus(strategies=["causal", "fifo"]) as bus:
        with pytest.raises(UsageError, match="this one offers fifo"):
            await bus.publish("North", {"n": 1}, topics=["South"])
        async with bus.subscribe("North") as found:
            with pytest.raises(UsageError, match="'fifo' is not served by one node"):
                await found.move("memory")


async def test_in_memory_a_subscription_moves_to_the_only_node() -> None:
    async with (
        asyncio.timeout(30),
        Bus(strategies=["causal"]) as bus,
        bus.subscribe("North", order="causal") as found,
    ):
        await bus.publish("North", {"n": 1})
        await found.move("memory")
        await bus.publish("North", {"n": 2})
        assert await taken(found, 2) == [("North", 1), ("North", 2)]
        with pytest.raises(UsageError, match="cannot be moved to nowhere"):
            await found.move()
        with pytest.raises(UsageError, match="cannot be moved to n7"):
            await found.move("n7")


@pytest.mark.parametrize(("order", "strategy"), [("causal", "causal"), ("total strict", "gossip")])
async def test_a_subscription_moves_from_node_to_node_and_misses_nothing(
    order: str, strategy: str
) -> None:
    async with nodes(strategy) as cluster:
        urls = [f"tcp://{cluster.nodes[name].door}" for name in NAMES]
        async with asyncio.timeout(60), Bus(urls[0]) as one, Bus(urls[1]) as other:
            moving = one.subscribe("North, South", order=order, strategy=strategy)
            staying = other.subscribe("North, South", order=order, strategy=strategy)
            async with moving, staying:
                for n in range(30):
                    await asyncio.gather(
                        one.publish("North", {"n": n}), other.publish("South", {"n": n})
                    )
                    if n % 5 == 0:
                        await moving.move(NAMES[n // 5 % 3])
                seen = await taken(moving, 60)
                assert sorted(seen) == sorted((t, n) for t in ("North", "South") for n in range(30))
                for topic in ("North", "South"):
                    assert [n for t, n in seen if t == topic] == list(range(30))
                if strategy == "gossip":
                    assert await taken(staying, 60) == seen


async def test_what_is_published_at_another_node_comes_after_what_was_seen() -> None:
    async with nodes("causal") as cluster, asyncio.timeout(60):
        home, away = NAMES[0], NAMES[1]
        name = next(f"app-{n}" for n in range(99) if cluster.home(f"app-{n}") == away)
        url = f"tcp://{cluster.nodes[home].door}"
        async with Bus(url) as sensor, Bus(url, name=name) as controller:
            async with controller.subscribe("North", order="causal") as seen:
                await sensor.publish("North", {"n": 1})
                await anext(seen)
                await controller.publish("South", {"n": 2})
                assert context_of(away)["North"] == 1
                await sensor.publish("North", {"n": 3})
                await anext(seen)
            await controller.publish("South", {"n": 4})  # also after the subscription is over
            assert context_of(away)["North"] == 2


async def test_what_was_seen_has_to_be_sealed_by_a_node() -> None:
    async with nodes("causal") as cluster, asyncio.timeout(60):
        door = cluster.nodes[NAMES[0]].door
        for forged in (
            b"",
            b"\0" * 40,
            Seal("other").close("causal", Known({"North": {"x": 9}}, 9)),
        ):
            async with Bus(f"tcp://{door}") as bus:
                _, pen = await bus._publisher()
                with pytest.raises(UsageError, match="not sealed by a node"):
                    await pen.publish([Given("South", {})], (forged,))
        assert context_of(NAMES[0]) == {}


def test_the_example_misses_no_fire_while_the_patrol_moves() -> None:
    example = Path(__file__).parents[2] / "examples" / "patrol.py"
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, timeout=120, check=True
    )
    assert [line[-1] for line in done.stdout.splitlines()] == list("012345678")
