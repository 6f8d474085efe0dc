"""Nodes that talk over a real NATS server, and applications that come in by it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from concordant.bus import Bus, Subscription
from concordant.errors import UsageError
from concordant.net.caller import CallerOptions
from concordant.net.cluster import Cluster, cluster_from
from concordant.net.node import Node
from tests.network.nats_process import NatsProcess
from tests.ports import free_ports

QUICK = CallerOptions(connect_s=10.0, retry_s=0.02, retry_s_max=0.2)
COUNT = 100


def cluster(server: NatsProcess, *, data: str = "") -> Cluster:
    doors = free_ports(2)
    return cluster_from(
        f'[cluster]\nname = "shop"\ntransport = "nats"\ndata = "{data}"\n'
        f'[nodes.n1]\ndoor = "127.0.0.1:{doors[0]}"\n[nodes.n2]\ndoor = "127.0.0.1:{doors[1]}"\n'
        f'[nats]\nservers = ["{server.url}"]\nretry_s = 0.05\n'
    )


async def ids(found: Subscription, count: int) -> list[str]:
    async with asyncio.timeout(30):
        return [(await anext(found)).events[0].id for _ in range(count)]


@pytest.mark.parametrize("order", ["fifo", "total strict"])
async def test_over_nats_subscribers_at_two_nodes_see_one_order(
    server: NatsProcess, order: str, tmp_path: Path
) -> None:
    made = cluster(server, data="data")
    nodes = [Node(made, name, beside=tmp_path) for name in made.names]
    for node in nodes:
        await node.start()
    by_nats = f"{server.url}/shop/n1"
    by_tcp = f"tcp://{made.nodes['n2'].door}"
    async with Bus.open(by_nats, options=QUICK) as one, Bus.open(by_tcp, options=QUICK) as two:

        async def publish(name: str, url: str) -> None:
            async with Bus.open(url, name=name, options=QUICK) as bus:
                for n in range(COUNT):
                    await bus.publish(("A", "B")[n % 2], {"n": n})

        async with (
            one.subscribe("A, B", order=order, name="first") as first,
            two.subscribe("A, B", order=order) as second,
        ):
            publishing = asyncio.gather(publish("p", by_nats), publish("q", by_tcp))
            found = await ids(first, 50)
            server.kill()
            server.start()
            found += await ids(first, 2 * COUNT - 50)
            other = await ids(second, 2 * COUNT)
            await publishing
    assert sorted(found) == sorted(f"{name}:{n}" for name in "pq" for n in range(1, COUNT + 1))
    assert sorted(other) == sorted(found)
    if order == "total strict":
        assert found == other
    for node in nodes:
        await node.stop()


async def test_what_is_wrong_with_nats_is_said(server: NatsProcess, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nobody answers at n9"):
        async with Bus.open(f"{server.url}/shop/n9", options=CallerOptions(connect_s=0.3)):
            pass
    with pytest.raises(UsageError, match="no address of a bus"):
        Bus.open("nats://127.0.0.1:4222")
    made = cluster(server)
    server.kill()
    with pytest.raises(UsageError, match="no NATS server answers"):
        await Node(made, "n1", beside=tmp_path).start()
