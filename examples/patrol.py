"""A patrol that moves between three sensor grids, over NATS.

    python examples/patrol.py

Each grid has a node with a broker; a real NATS server carries what they say to each other. A sensor
reports smoke at the first grid. A controller at the last one, which has seen it, reports heat. The
patrol asks for both by a pattern, and from time to time lets another grid serve it. Whatever broker
that is, no heat comes before the smoke that caused it, so no fire is missed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from concordant.bus import Bus, Subscription
from concordant.net.cluster import cluster_from
from concordant.net.node import Node

GRIDS = ("first", "second", "third")
ROOMS = 9
QUESTION = "fire: Smoke then Heat partition by room within 1 min"
KINDS = {"Smoke": {"room": "int"}, "Heat": {"room": "int"}}


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [int(one.getsockname()[1]) for one in sockets]


@contextlib.contextmanager
def nats(port: int) -> Iterator[None]:
    """A NATS server of our own."""
    program = Path(sys.executable).with_name("nats-server")
    with subprocess.Popen(
        [str(program), "-a", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            yield
        finally:
            server.terminate()


async def control(smoke: Subscription, controller: Bus) -> None:
    async for delivery in smoke:
        await controller.publish("Heat", {"room": delivery.events[0].read("room")})


async def main() -> None:
    port, *doors = free_ports(4)
    cluster = cluster_from(
        f'[cluster]\nname = "grids"\ntransport = "nats"\nstrategies = ["causal"]\n'
        f'[nats]\nservers = ["nats://127.0.0.1:{port}"]\n'
        + "".join(
            f'[nodes.{grid}]\ndoor = "127.0.0.1:{door}"\n'
            for grid, door in zip(GRIDS, doors, strict=True)
        )
    )
    urls = [f"tcp://127.0.0.1:{door}" for door in doors]
    async with contextlib.AsyncExitStack() as stack:
        stack.enter_context(nats(port))
        for grid in GRIDS:
            node = Node(cluster, grid)
            await node.start()
            stack.push_async_callback(node.stop)
        sensor = await stack.enter_async_context(Bus(urls[0]))
        patrol = await stack.enter_async_context(Bus(urls[1]))
        controller = await stack.enter_async_context(Bus(urls[2]))
        smoke = await stack.enter_async_context(controller.subscribe("Smoke", order="causal"))
        fires = await stack.enter_async_context(
            patrol.subscribe(QUESTION, order="causal", topics=KINDS)
        )
        reacting = asyncio.create_task(control(smoke, controller))
        for room in range(ROOMS):
            await sensor.publish("Smoke", {"room": room})
            if room % 3 == 0:
                await fires.move(GRIDS[room // 3])
            fire = await anext(fires)
            print(f"served by the {GRIDS[room // 3]} grid: fire in room", fire.key[0])
        reacting.cancel()


if __name__ == "__main__":
    asyncio.run(main())
