"""One order across NATS subjects: two nodes, two applications, a real NATS server.

    python examples/total/nats_order.py

Two publishers send orders and payments at the same time. Each subject has its own sequencer, and
there is no process that handles everything. Two applications at different nodes still see both
subjects in the same order.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from concordant.bus import Bus
from concordant.net.cluster import cluster_from
from concordant.net.node import Node

COUNT = 50
CLUSTER = """
[cluster]
name = "shop"
transport = "nats"
strategies = ["sequencing"]

[nats]
servers = ["nats://127.0.0.1:{nats}"]

[nodes.north]
door = "127.0.0.1:{north}"

[nodes.south]
door = "127.0.0.1:{south}"

[topics.Order]
n = "int"

[topics.Payment]
n = "int"
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


@contextlib.contextmanager
def nats_server(port: int) -> Iterator[None]:
    program = Path(sys.executable).with_name("nats-server")
    server = subprocess.Popen([str(program), "-p", str(port)], stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        server.terminate()
        server.wait()


async def main() -> None:
    ports = {name: free_port() for name in ("nats", "north", "south")}
    cluster = cluster_from(CLUSTER.format(**ports))
    with nats_server(ports["nats"]):
        nodes = [Node(cluster, name) for name in ("north", "south")]
        await asyncio.gather(*(node.start() for node in nodes))
        try:
            await publish_and_compare(ports)
        finally:
            await asyncio.gather(*(node.stop() for node in nodes))


async def publish_and_compare(ports: dict[str, int]) -> None:
    doors = [f"tcp://127.0.0.1:{ports[name]}" for name in ("north", "south")]
    async with Bus(doors[0]) as shop, Bus(doors[1]) as bank:
        one = shop.subscribe("Order, Payment", order="total")
        other = bank.subscribe("Payment, Order", order="total")
        async with one, other:
            for n in range(COUNT):
                await asyncio.gather(
                    shop.publish("Order", {"n": n}), bank.publish("Payment", {"n": n})
                )
            seen = [
                [(await anext(found)).events[0] for _ in range(2 * COUNT)] for found in (one, other)
            ]
    same = [event.id for event in seen[0]] == [event.id for event in seen[1]]
    turns = sum(a.topic != b.topic for a, b in zip(seen[0], seen[0][1:], strict=False))
    print(f"{2 * COUNT} events on two subjects, which take turns {turns} times")
    print(f"both applications saw them in the same order: {'yes' if same else 'no'}")


if __name__ == "__main__":
    asyncio.run(main())
