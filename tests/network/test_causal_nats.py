"""Brokers that gossip over a real NATS server, which loses what it carries when it dies."""

from __future__ import annotations

import asyncio

from concordant.bus import Bus, Subscription
from concordant.net.caller import CallerOptions
from concordant.net.cluster import cluster_from
from concordant.net.node import Node
from tests.network.nats_process import NatsProcess
from tests.ports import free_ports

QUICK = CallerOptions(connect_s=10.0, retry_s=0.02, retry_s_max=0.2)
COUNT = 30


async def ids(found: Subscription, count: int) -> list[str]:
    async with asyncio.timeout(30):
        return [(await anext(found)).events[0].id for _ in range(count)]


async def test_over_nats_gossip_is_one_order_and_misses_nothing(server: NatsProcess) -> None:
    doors = [f"127.0.0.1:{port}" for port in free_ports(2)]
    cluster = cluster_from(
        '[cluster]\nname = "grid"\ntransport = "nats"\nstrategies = ["gossip"]\n'
        f'[nodes.n1]\ndoor = "{doors[0]}"\n[nodes.n2]\ndoor = "{doors[1]}"\n'
        f'[nats]\nservers = ["{server.url}"]\nretry_s = 0.05\n'
        "[parameters]\ntick_us = 10_000\nacknowledge_us = 10_000\nresend_us = 50_000\n"
    )
    nodes = [Node(cluster, name) for name in cluster.names]
    for node in nodes:
        await node.start()

    async def publish(name: str, door: str) -> None:
        async with Bus.open(f"tcp://{door}", name=name, options=QUICK) as bus:
            for n in range(COUNT):
                await bus.publish(("A", "B")[n % 2], {"n": n})

    async with (
        Bus.open(f"tcp://{doors[0]}", options=QUICK) as one,
        Bus.open(f"tcp://{doors[1]}", options=QUICK) as two,
        one.subscribe("A, B", order="total strict", strategy="gossip") as first,
        two.subscribe("A, B", order="total strict", strategy="gossip") as second,
    ):
        publishing = asyncio.gather(publish("p", doors[0]), publish("q", doors[1]))
        found = await ids(first, COUNT // 2)
        server.kill()
        server.start()
        found += await ids(first, 2 * COUNT - len(found))
        other = await ids(second, 2 * COUNT)
        await publishing
    for node in nodes:
        await node.stop()
    assert found == other
    for name in "pq":
        assert [one for one in found if one.startswith(name)] == [
            f"{name}:{n}" for n in range(1, COUNT + 1)
        ]
