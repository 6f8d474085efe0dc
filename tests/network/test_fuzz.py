"""Fuzzed frames against a real node over TCP: it goes on, stays small, and counts the reasons."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from concordant.bus import Bus
from concordant.net.carrier import MeshCarrier
from concordant.net.cluster import cluster_from
from concordant.net.node import Node
from tests.network import fuzz

ATTACK_COUNT = 400


async def serves(door: int, name: str) -> None:
    """A good application is served as if nothing had happened."""
    async with (
        asyncio.timeout(20),
        Bus.open(f"tcp://127.0.0.1:{door}", name=name, token=fuzz.APPLICATIONS) as bus,
        bus.subscribe("Good", order="total strict") as found,
    ):
        await bus.publish("Good", {"n": 1})
        async for delivery in found:
            assert delivery.events[0].source == name
            return


def name_at(node: Node) -> str:
    """A name that belongs to the node which runs."""
    return next(n for n in map("good{}".format, range(100)) if node.cluster.home(n) == "n1")


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_node_survives_fuzzed_frames_and_serves_others(seed: int) -> None:
    address, door, http = fuzz.free_ports(3)
    text = fuzz.CLUSTER.format(address=address, door=door, http=http)
    node = Node(cluster_from(text), "n1")
    await node.start()
    loop_errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, seen: loop_errors.append(seen))
    try:
        name = name_at(node)
        await serves(door, name)
        done = await fuzz.attacks(Random(seed), ATTACK_COUNT, address=address, door=door)
        assert min(done.values()) > ATTACK_COUNT // 8
        await serves(door, name)
        assert node.failure is None
        assert loop_errors == []
        assert node._links is not None and node._door is not None
        assert isinstance(node._carrier, MeshCarrier)
        assert sum(node._links.refused.values()) > ATTACK_COUNT // 8
        assert sum(node._door.refused.values()) > ATTACK_COUNT // 8
        assert node._carrier.refused_count > 50
        assert max(len(node._links.refused), len(node._door.refused)) <= 65
    finally:
        await node.stop()
