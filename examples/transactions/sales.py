"""A sale is one transaction of two applications, on a cluster of three nodes.

The shop publishes an order, makes the till publish a receipt, and publishes the payment: all of it
or nothing. An auditor subscribes to the three topics in one total order, and sees whole sales only.
The second sale is given up in the middle.

    python examples/transactions/sales.py
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from concordant.bus import Bus
from concordant.net.cluster import cluster_from
from concordant.net.node import Node
from concordant.net.transactions import Answer
from concordant.transact.client import Triggered

NODES = ("n1", "n2", "n3")


def cluster_text(ports: list[int]) -> str:
    """What a cluster file says; `concordant node FILE --name n1` would run one of its nodes."""
    head = '[cluster]\nname = "shop"\ndata = "data"\ntransactions = "isolated"\n'
    tables = [
        f'[nodes.{name}]\ndoor = "127.0.0.1:{ports[2 * n]}"\n'
        f'address = "127.0.0.1:{ports[2 * n + 1]}"\n'
        for n, name in enumerate(NODES)
    ]
    return head + "".join(tables)


async def ring_up(trigger: Triggered, answer: Answer) -> None:
    """What the till does when it is triggered, as a part of the shop's transaction."""
    await answer.publish("Receipt", {"n": trigger.event.attributes["n"]})


async def sell(shop: Bus, number: int, *, pays: bool) -> str:
    """One sale; what became of it."""
    try:
        async with shop.transaction("isolated") as tx:
            await tx.publish("Order", {"n": number})
            await tx.trigger("till", "Ring", {"n": number})
            if not pays:
                raise ValueError("the customer left")
            await tx.publish("Payment", {"n": number})
    except ValueError as error:
        print(f"sale {number}: {error}")
    return f"sale {number}: {type(tx.outcome).__name__}"


async def main() -> None:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2 * len(NODES))]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    cluster = cluster_from(cluster_text(ports))
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        for name in NODES:
            node = Node(cluster, name, beside=folder)
            await node.start()
            stack.push_async_callback(node.stop)
        doors = [f"tcp://{cluster.nodes[name].door}" for name in NODES]
        shop = await stack.enter_async_context(Bus.open(doors[0], name="shop"))
        till = await stack.enter_async_context(Bus.open(doors[1], name="till"))
        auditor = await stack.enter_async_context(Bus.open(doors[2], name="auditor"))
        ledger = auditor.subscribe("Order, Receipt, Payment", order="total strict")
        await stack.enter_async_context(ledger)

        # What both have before the first sale. This is a transaction as well: when it has
        # committed, it is known at all nodes.
        await till.participant(ring_up)
        async with till.transaction("isolated") as opening:
            await opening.subscribe("rings", "Ring")
            await opening.advertise("receipts", "Receipt")
        async with shop.transaction("isolated") as opening:
            for topic in ("Order", "Ring", "Payment"):
                await opening.advertise(topic, topic)

        print(await sell(shop, 1, pays=True))
        print(await sell(shop, 2, pays=False))
        print(await sell(shop, 3, pays=True))
        for _ in range(6):
            event = (await anext(ledger)).events[0]
            print(f"  the auditor sees {event.topic} {event.attributes['n']}")


if __name__ == "__main__":
    asyncio.run(main())
