"""Every strategy that is offered, over three nodes and TCP: what its level promises holds.

Ordered merging and its baselines over NATS and within one process, too.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from concordant.bus import Bus, Subscription
from concordant.net.caller import CallerOptions
from concordant.net.cluster import Cluster, cluster_from
from concordant.net.node import Node
from concordant.net.roles import STRATEGIES
from tests.network.nats_process import NatsProcess
from tests.ports import free_ports

NODES = ("n1", "n2", "n3")
TOPICS = ("A", "B")
PUBLISHERS = ("p", "q", "r")
COUNT = 30
QUICK = CallerOptions(connect_s=10.0, retry_s=0.02, retry_s_max=0.2)


MERGED = ("merging", "merging-stamped", "replicated", "paxos", "token")
EVERYTHING = sorted((s, TOPICS[n % 2], n + 1) for s in PUBLISHERS for n in range(COUNT))


def cluster(strategy: str, server: NatsProcess | None = None) -> Cluster:
    ports = free_ports(6)
    nodes = "".join(
        f'[nodes.{name}]\ndoor = "127.0.0.1:{ports[2 * n]}"\n'
        + ("" if server else f'address = "127.0.0.1:{ports[2 * n + 1]}"\n')
        for n, name in enumerate(NODES)
    )
    topics = "".join(f'[topics.{topic}]\nn = "int"\n' for topic in TOPICS)
    head = f'[cluster]\nname = "test"\nstrategies = ["{strategy}"]\n'
    if server is not None:
        head += 'transport = "nats"\n'
        topics += f'[nats]\nservers = ["{server.url}"]\nretry_s = 0.05\n'
    return cluster_from(head + nodes + topics)


async def read(found: Subscription, count: int) -> list[tuple[str, str, int]]:
    events = [(await anext(found)).events[0] for _ in range(count)]
    return [(event.source, event.topic, event.seq) for event in events]


async def relations(found: Subscription, count: int) -> list[tuple[str, ...]]:
    return [tuple(event.id for event in (await anext(found)).events) for _ in range(count)]


async def publish(source: str, door: str) -> None:
    async with Bus.open(door, name=source, options=QUICK) as bus:
        for n in range(COUNT):
            await bus.publish(TOPICS[n % 2], {"n": 1_000 * ord(source) + n // 2})


async def connected(nodes: list[Node]) -> None:
    """Who is not connected misses what `none` does not repeat."""
    async with asyncio.timeout(20):
        while any(len(one.health()["connected"]) < len(nodes) - 1 for one in nodes):
            await asyncio.sleep(0.02)


def keep_the_promise(level: str, taken: list[list[tuple[str, str, int]]]) -> None:
    for one in taken:
        assert sorted(one) == EVERYTHING
        if level != "none":
            for source in PUBLISHERS:
                for topic in TOPICS:
                    mine = [seq for s, t, seq in one if (s, t) == (source, topic)]
                    assert mine == sorted(mine)
    if level.startswith("total"):
        assert taken[0] == taken[1] == taken[2]


async def played(made: Cluster, name: str) -> list[list[tuple[str, str, int]]]:
    """What three subscribers at three nodes took of what three publishers published."""
    strategy, count = STRATEGIES[name], len(EVERYTHING)
    doors = [f"tcp://{made.nodes[node].door}" for node in NODES]
    nodes: list[Node] = []
    async with AsyncExitStack() as stack:
        for node in NODES:
            running = Node(made, node)
            await running.start()
            stack.push_async_callback(running.stop)
            nodes.append(running)
        await connected(nodes)
        buses = [await stack.enter_async_context(Bus.open(d, options=QUICK)) for d in doors]
        asked = {"order": strategy.level, "strategy": name}
        found = [await stack.enter_async_context(bus.subscribe("A, B", **asked)) for bus in buses]
        pairs = [
            await stack.enter_async_context(bus.subscribe("A and B partition by n", **asked))
            for bus in buses[:2]
        ]
        sequence = await stack.enter_async_context(
            buses[0].subscribe("A then B partition by n", **asked)
        )
        async with asyncio.timeout(40):
            await asyncio.gather(*(publish(s, d) for s, d in zip(PUBLISHERS, doors, strict=True)))
            taken = await asyncio.gather(*(read(one, count) for one in found))
            one, other = await asyncio.gather(*(relations(each, count // 2) for each in pairs))
            if strategy.level in ("causal", "total strict"):  # elsewhere B may come before its A
                await relations(sequence, count // 2)
    assert sorted(one) == sorted(other)
    assert strategy.level not in ("agreed", "total strict") or one == other
    return taken


@pytest.mark.parametrize("name", STRATEGIES)
async def test_what_a_strategy_promises_holds_over_three_nodes(name: str) -> None:
    keep_the_promise(STRATEGIES[name].level, await played(cluster(name), name))


@pytest.mark.parametrize("name", MERGED)
async def test_what_merging_and_its_baselines_promise_holds_over_nats(
    name: str, server: NatsProcess
) -> None:
    keep_the_promise(STRATEGIES[name].level, await played(cluster(name, server), name))


@pytest.mark.parametrize("name", MERGED)
async def test_what_merging_and_its_baselines_promise_holds_in_memory(name: str) -> None:
    asked = {"order": STRATEGIES[name].level, "strategy": name}
    async with AsyncExitStack() as stack:
        bus = await stack.enter_async_context(Bus.open("memory:", name="p", strategies=(name,)))
        found = [await stack.enter_async_context(bus.subscribe("A, B", **asked)) for _ in range(3)]
        async with asyncio.timeout(20):
            for n in range(COUNT):
                await bus.publish(TOPICS[n % 2], {"n": n})
            first, *others = [await read(one, COUNT) for one in found]
    assert sorted(first) == [one for one in EVERYTHING if one[0] == "p"]
    assert name == "merging" or others == [first, first]
