"""A node of a cluster that lost its disk for good: its mergers get back what they had."""

from __future__ import annotations

import asyncio
import shutil
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from concordant.bus import Bus
from concordant.errors import UsageError
from concordant.net.caller import CallerOptions
from concordant.net.cluster import Cluster, cluster_from
from concordant.net.node import Node
from tests.ports import free_ports

NODES = ("n1", "n2", "n3")
QUICK = CallerOptions(connect_s=20.0, retry_s=0.02, retry_s_max=0.2)
COUNT = 20


def cluster(folder: Path, ports: list[int], *, replaced: str = "") -> Cluster:
    nodes = "".join(
        f'[nodes.{name}]\ndoor = "127.0.0.1:{ports[2 * n]}"\n'
        f'address = "127.0.0.1:{ports[2 * n + 1]}"\n'
        for n, name in enumerate(NODES)
    )
    return cluster_from(
        f'[cluster]\nname = "test"\ndata = "{folder}"\nstrategies = ["merging"]\n'
        f'replaced = "{replaced}"\n{nodes}[topics.A]\nn = "int"\n'
    )


def name_at(made: Cluster, node: str) -> str:
    """A name that belongs to a node."""
    return next(name for name in (f"a{n}" for n in range(100)) if made.home(name) == node)


def arrived(node: Node) -> bool:
    """Its host of mergers has every log and holds nothing back."""
    host = next(one for one in node._places if one.address.endswith("/host"))
    parts = host.machine._state.parts  # type: ignore[attr-defined]
    return bool(parts) and host.machine.held_count == 0


async def test_a_node_without_its_disk_gets_its_mergers_back_and_votes(tmp_path: Path) -> None:
    ports = free_ports(6)
    made = cluster(tmp_path, ports)
    door = f"tcp://{made.nodes['n1'].door}"
    async with AsyncExitStack() as stack:
        nodes = {}
        for name in NODES:
            nodes[name] = Node(made, name)
            await nodes[name].start()
            stack.push_async_callback(nodes[name].stop)
        source = name_at(made, "n1")
        bus = await stack.enter_async_context(Bus.open(door, name=source, options=QUICK))
        found = await stack.enter_async_context(bus.subscribe("A", order="agreed"))

        async def more(first: int) -> list[int]:
            for n in range(first, first + COUNT):
                await bus.publish("A", {"n": n})
            events = [(await anext(found)).events[0] for _ in range(COUNT)]
            return [int(one.attributes["n"]) for one in events]  # type: ignore[arg-type]

        async with asyncio.timeout(60):
            assert await more(0) == list(range(COUNT))
            await nodes["n2"].stop()
            shutil.rmtree(tmp_path / "n2")
            told = cluster(tmp_path, ports, replaced="n2")
            for _ in range(2):  # the second life has a disk, and is named all the same
                await nodes["n2"].stop()
                nodes["n2"] = Node(told, "n2")
                await nodes["n2"].start()
                stack.push_async_callback(nodes["n2"].stop)
                while not arrived(nodes["n2"]):
                    await asyncio.sleep(0.02)
            await nodes["n3"].stop()  # without the arrived one there is no majority
            assert await more(COUNT) == list(range(COUNT, 2 * COUNT))
            other = name_at(made, "n2")
            async with Bus.open(
                f"tcp://{made.nodes['n2'].door}", name=other, options=QUICK
            ) as late:
                with pytest.raises(UsageError, match="lost its disk"):
                    await late.publish("A", {"n": 0})
