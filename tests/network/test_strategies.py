"""Every strategy that is offered, over three nodes and TCP: what its level promises holds."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import pytest

from concordant.bus import Bus, Subscription
from concordant.net.caller import CallerOptions
from concordant.net.cluster import Cluster, cluster_from
from concordant.net.node import Node
from concordant.net.roles import STRATEGIES
from tests.ports import free_ports

NODES = ("n1", "n2", "n3")
TOPICS = ("A", "B")
PUBLISHERS = ("p", "q", "r")
COUNT = 30
QUICK = CallerOptions(connect_s=10.0, retry_s=0.02, retry_s_max=0.2)


def cluster(strategy: str) -> Cluster:
    ports = free_ports(6)
    nodes = "".join(
        f'[nodes.{name}]\ndoor = "127.0.0.1:{ports[2 * n]}"\n'
        f'address = "127.0.0.1:{ports[2 * n + 1]}"\n'
        for n, name in enumerate(NODES)
    )
    topics = "".join(f'[topics.{topic}]\nn = "int"\n' for topic in TOPICS)
    head = f'[cluster]\nname = "test"\nstrategies = ["{strategy}"]\n'
    return cluster_from(head + nodes + topics)


async def read(found: Subscription, count: int) -> list[tuple[str, str, int]]:
    events = [(await anext(found)).events[0] for _ in range(count)]
    return [(event.source, event.topic, event.seq) for event in events]


@pytest.mark.parametrize("name", STRATEGIES)
async def test_what_a_strategy_promises_holds_over_three_nodes(name: str) -> None:
    strategy = STRATEGIES[name]
    made = cluster(name)
    doors = [f"tcp://{made.nodes[node].door}" for node in NODES]
    count = COUNT * len(PUBLISHERS)
    nodes: list[Node] = []
    async with AsyncExitStack() as stack:
        for node in NODES:
            running = Node(made, node)
            await running.start()
            stack.push_async_callback(running.stop)
            nodes.append(running)
        async with asyncio.timeout(20):  # who is not connected misses what `none` does not repeat
            while any(len(one.health()["connected"]) < len(NODES) - 1 for one in nodes):
                await asyncio.sleep(0.02)
        buses = [await stack.enter_async_context(Bus.open(d, options=QUICK)) for d in doors]
        asked = {"order": strategy.level, "strategy": name}
        found = [await stack.enter_async_context(bus.subscribe("A, B", **asked)) for bus in buses]
        pairs = await stack.enter_async_context(
            buses[0].subscribe("A then B partition by n", **asked)
        )

        async def publish(source: str, door: str) -> None:
            async with Bus.open(door, name=source, options=QUICK) as bus:
                for n in range(COUNT):
                    await bus.publish(TOPICS[n % 2], {"n": 1_000 * ord(source) + n // 2})

        async with asyncio.timeout(40):
            await asyncio.gather(*(publish(s, d) for s, d in zip(PUBLISHERS, doors, strict=True)))
            taken = await asyncio.gather(*(read(one, count) for one in found))
            if strategy.level not in ("none", "fifo", "total"):  # there B may come before its A
                for _ in range(count // 2):
                    await anext(pairs)
    everything = sorted((s, TOPICS[n % 2], n + 1) for s in PUBLISHERS for n in range(COUNT))
    for one in taken:
        assert sorted(one) == everything
        if strategy.level != "none":
            for source in PUBLISHERS:
                for topic in TOPICS:
                    mine = [seq for s, t, seq in one if (s, t) == (source, topic)]
                    assert mine == sorted(mine)
    if strategy.level.startswith("total"):
        assert taken[0] == taken[1] == taken[2]
