"""A subscription moves from one client to another while events flow: none is lost, none doubled.

python examples/transactions/moving.py
"""

from __future__ import annotations

import asyncio
from collections import Counter

from concordant.net.carrier import MemoryCarrier
from concordant.net.transactions import Answer, Door, host_broker
from concordant.route.filter import filter_of
from concordant.transact.client import Triggered

ORDERS = filter_of("Order")
COUNT = 60
BEFORE, DURING, AFTER = range(20), range(20, 40), range(40, COUNT)
"""Orders by when they are sold: before the move begins, beside it, and when it has ended."""


async def hand_over(trigger: Triggered, answer: Answer) -> None:
    if trigger.event.attributes["to"] == "new":
        await answer.subscribe("orders", ORDERS)
    else:
        await answer.unsubscribe("orders")


async def main() -> None:
    carrier = MemoryCarrier()
    for name, near in {"B1": ("B2",), "B2": ("B1", "B3"), "B3": ("B2",)}.items():
        parent = "" if name == "B2" else "B2"
        host_broker(name, carrier, neighbours=near, isolated=True, parent=parent)
    got: Counter[tuple[str, object]] = Counter()

    def client(name: str, broker: str) -> Door:
        def take(event) -> None:
            if event.topic == "Order":
                got[name, event.attributes["n"]] += 1

        return Door(name, broker, carrier, take=take, handler=hand_over)

    shop, old, new = client("shop", "B1"), client("old", "B2"), client("new", "B3")
    await shop.advertise("orders", ORDERS)
    await shop.advertise("calls", filter_of("Call"))
    for door in (old, new):
        await door.subscribe("calls", filter_of("Call", to=door.name))
    await old.subscribe("orders", ORDERS)
    await asyncio.sleep(0.2)

    async def sell(numbers: range) -> None:
        """Each order is a transaction of its own, so it is before the move or after it."""
        for n in numbers:
            async with shop.transaction("isolated") as tx:
                await tx.publish("Order", {"n": n})
            while type(tx.outcome).__name__ == "Aborted":  # it clashed with the move: again
                async with shop.transaction("isolated") as tx:
                    await tx.publish("Order", {"n": n})

    async def move() -> str:
        async with shop.transaction("isolated") as tx:
            await tx.trigger("new", "Call", {"to": "new"})
            await tx.trigger("old", "Call", {"to": "old"})
        return type(tx.outcome).__name__

    await sell(BEFORE)
    _, moved = await asyncio.gather(sell(DURING), move())
    await sell(AFTER)
    await asyncio.sleep(0.2)
    print(f"the move: {moved}")
    print(f"orders: {len(got)} of {COUNT} arrived, {sum(n > 1 for n in got.values())} twice")
    kept = {got["old", n] for n in BEFORE} | {got["new", n] for n in AFTER} == {1}
    print(f"before the move at old, after it at new: {kept}")
    for door in (shop, old, new):
        await door.stop()


if __name__ == "__main__":
    asyncio.run(main())
