"""Applications ask for `total` and `total strict`, and a cluster sequences per topic."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from concordant.bus import Bus
from concordant.errors import ConcordantError
from concordant.net.cluster import cluster_from
from concordant.net.node import Node
from tests.ports import free_ports

STRATEGIES = [
    ("total", "sequencing"),
    ("total strict", "sequencing-strict"),
    ("total", "sequencing-replicated"),
    ("total strict", "stamped"),
]


@pytest.mark.parametrize(("order", "strategy"), STRATEGIES)
async def test_two_applications_see_two_topics_in_one_order(order: str, strategy: str) -> None:
    (port,) = free_ports(1)
    cluster = cluster_from(
        f'[cluster]\nname = "shop"\nstrategies = ["{strategy}"]\n'
        f'[nodes.n1]\ndoor = "127.0.0.1:{port}"\n'
        '[topics.Order]\nn = "int"\n[topics.Payment]\nn = "int"\n'
    )
    node = Node(cluster, "n1")
    await node.start()
    url = f"tcp://127.0.0.1:{port}"
    try:
        async with asyncio.timeout(30), Bus(url) as shop, Bus(url) as bank:
            one = shop.subscribe("Order, Payment", order=order, strategy=strategy)
            other = bank.subscribe("Payment, Order", order=order, strategy=strategy)
            async with one, other:
                for n in range(20):
                    await asyncio.gather(
                        shop.publish("Order", {"n": n}), bank.publish("Payment", {"n": n})
                    )
                seen = [
                    [(await anext(found)).events[0].id for _ in range(40)] for found in (one, other)
                ]
            assert seen[0] == seen[1]
            assert len(set(seen[0])) == 40
            with pytest.raises(ConcordantError, match="Stock"):
                async with shop.subscribe("Stock", order=order, strategy=strategy):
                    pass
    finally:
        await node.stop()


@pytest.mark.parametrize(("order", "strategy"), STRATEGIES)
async def test_in_memory_two_subscriptions_see_two_topics_in_one_order(
    order: str, strategy: str
) -> None:
    topics = {"Order": {"n": "int"}, "Payment": {"n": "int"}}
    async with asyncio.timeout(30), Bus(strategies=[strategy], topics=topics) as bus:
        one = bus.subscribe("Order, Payment", order=order, strategy=strategy)
        other = bus.subscribe("Payment, Order", order=order, strategy=strategy)
        async with one, other:
            for n in range(20):
                await bus.publish("Order", {"n": n})
                await bus.publish("Payment", {"n": n})
            seen = [
                [(await anext(found)).events[0].id for _ in range(40)] for found in (one, other)
            ]
    assert seen[0] == seen[1]
    assert len(set(seen[0])) == 40


async def test_a_topic_outlives_the_node_that_leads_it() -> None:
    strategy, names = "sequencing-replicated", ("n1", "n2", "n3")
    ports = free_ports(6)
    cluster = cluster_from(
        f'[cluster]\nname = "shop"\nstrategies = ["{strategy}"]\n'
        + "".join(
            f'[nodes.{name}]\ndoor = "127.0.0.1:{ports[2 * n]}"\n'
            f'address = "127.0.0.1:{ports[2 * n + 1]}"\n'
            for n, name in enumerate(names)
        )
        + '[topics.Order]\nn = "int"\n[topics.Payment]\nn = "int"\n'
    )
    nodes = {name: Node(cluster, name) for name in names}
    leader = cluster.setting("n1").placed[f"{strategy}/Order*1"].partition("/")[0]
    here, there = (f"tcp://{cluster.nodes[name].door}" for name in names if name != leader)
    # Who publishes under a name does so at its home: take names of nodes that stay.
    mine, yours = [n for n in map(str, range(20)) if cluster.home(n) != leader][:2]
    try:
        for node in nodes.values():
            await node.start()
        async with (
            asyncio.timeout(60),
            Bus(here, name=mine) as shop,
            Bus(there, name=yours) as bank,
        ):
            one = shop.subscribe("Order, Payment", order="total", strategy=strategy)
            other = bank.subscribe("Order, Payment", order="total", strategy=strategy)
            async with one, other:
                for n in range(30):
                    if n == 10:
                        await nodes[leader].stop()  # and it never comes back
                    await asyncio.gather(
                        shop.publish("Order", {"n": n}), bank.publish("Payment", {"n": n})
                    )
                seen = [
                    [(await anext(found)).events[0].id for _ in range(60)] for found in (one, other)
                ]
        assert seen[0] == seen[1]
        assert len(set(seen[0])) == 60
    finally:
        for node in nodes.values():
            await node.stop()


def test_the_example_shows_one_order_across_nats_subjects() -> None:
    example = Path(__file__).parents[2] / "examples" / "total" / "nats_order.py"
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.startswith("100 events on two subjects")
    assert done.stdout.endswith("both applications saw them in the same order: yes\n")
