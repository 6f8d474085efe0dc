"""Sales as transactions over the bus, with three nodes that are killed while they go on.

Each node is a process, forked from a server that has loaded everything. Two shops sell: a sale is
an order, a trigger that makes the till publish a receipt, and a payment. Two subscribers of the
total order read all topics at different nodes. At the end both must have read the same: of a
committed sale all four events, once, in the order of the operations, and of an aborted one none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from random import Random

from concordant.bus import Bus, Subscription
from concordant.net.caller import CallerOptions
from concordant.net.cluster import read_cluster
from concordant.net.node import Node
from concordant.net.transactions import Answer
from concordant.transact.actions import Committed, Outcome
from concordant.transact.client import Triggered
from tests.network.dispatching import _NURSERY, Lives, Said
from tests.ports import free_ports

_NURSERY.set_forkserver_preload(["tests.network.dispatching", "tests.network.selling"])

NODES = ("n1", "n2", "n3")
SHOPS = ("shop1", "shop2")
TOPICS = ("Order", "Ring", "Receipt", "Payment")
DEADLINE_S = 60
KILL_S = 0.6
QUICK = CallerOptions(connect_s=20.0, retry_s=0.02, retry_s_max=0.2)


def live(path: str, name: str) -> None:
    """The life of a node's process."""
    log = os.open(Path(path).parent / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    asyncio.run(_node(Path(path), name))


async def _node(path: Path, name: str) -> None:
    node = Node(read_cluster(path), name, beside=path.parent)
    await node.start()
    await node.failed.wait()
    raise SystemExit(f"{name}: {node.failure}")


class Nodes(Lives):
    """The processes."""

    def __init__(self, folder: Path, *, transactions: str, transport: str = "tcp") -> None:
        ports = free_ports(2 * len(NODES))
        tables = "".join(
            f'[nodes.{name}]\ndoor = "127.0.0.1:{ports[2 * n]}"\n'
            f'address = "127.0.0.1:{ports[2 * n + 1]}"\n'
            for n, name in enumerate(NODES)
        )
        self.doors = {name: f"tcp://127.0.0.1:{ports[2 * n]}" for n, name in enumerate(NODES)}
        self.file = folder / "cluster.toml"
        self.file.write_text(
            f'[cluster]\nname = "test"\ndata = "data"\nstrategies = ["sequencer"]\n'
            f'transactions = "{transactions}"\n{tables}[parameters]\ntransaction_us = 4_000_000\n'
        )
        super().__init__(folder, NODES, live, str(self.file))


async def ring_up(trigger: Triggered, answer: Answer) -> None:
    """What the till does in a sale."""
    await answer.publish("Receipt", dict(trigger.event.attributes))


async def sell(shop: Bus, kind: str, number: int) -> Outcome:
    """One sale; every fourth is spoiled, by what the till is asked for or by its customer."""
    sale = {"shop": shop.name, "n": number}
    spoiled = number % 4 == 3
    if kind == "static":
        async with shop.transaction("static") as plan:
            plan.publish("Order", sale)
            till = plan.trigger("till", "Ring", sale)
            till.publish("Receipt", sale)
            if spoiled:
                till.unsubscribe("what it does not have")
            plan.publish("Payment", sale)
        return plan.outcome
    with contextlib.suppress(LeftError):
        async with shop.transaction(kind) as tx:  # type: ignore[call-overload]
            await tx.publish("Order", sale)
            await tx.trigger("till", "Ring", sale)
            if spoiled:
                raise LeftError
            await tx.publish("Payment", sale)
    return tx.outcome  # type: ignore[no-any-return]


class LeftError(Exception):
    """The customer left."""


async def read(found: Subscription, ends: set[tuple[str, int]]) -> list[tuple[str, str, int]]:
    """Everything up to the payments of the last sales."""
    got = []
    left = set(ends)
    async for delivery in found:
        event = delivery.events[0]
        sale = (str(event.attributes["shop"]), int(event.attributes["n"]))  # type: ignore[arg-type]
        got.append((event.topic, *sale))
        if event.topic == "Payment":
            left.discard(sale)
        if not left:
            return got
    return got


async def run_selling(kind: str, folder: Path, *, rng: Random, count: int, kill_count: int) -> Said:
    """Sell while nodes are killed, and compare what was read with the outcomes."""
    said = Said()
    folder.mkdir(parents=True, exist_ok=True)
    nodes = Nodes(folder, transactions="isolated" if kind == "isolated" else "shared")
    try:
        async with asyncio.timeout(DEADLINE_S):
            await _sell_all(kind, nodes, rng, count, kill_count, said)
        nodes.check()
    finally:
        nodes.stop()
    return said


async def _sell_all(
    kind: str, nodes: Nodes, rng: Random, count: int, kill_count: int, said: Said
) -> None:
    def bus(name: str, node: str) -> Bus:
        return Bus.open(nodes.doors[node], name=name, options=QUICK)

    outcomes: dict[tuple[str, int], Outcome] = {}
    async with (
        bus("till", "n3") as till,
        bus("shop1", "n1") as shop1,
        bus("shop2", "n2") as shop2,
        bus("reader1", "n1") as reader1,
        bus("reader2", "n2") as reader2,
        reader1.subscribe(", ".join(TOPICS), order="total strict", name="r1") as one,
        reader2.subscribe(", ".join(TOPICS), order="total strict", name="r2") as two,
    ):
        part = await till.participant(ring_up)
        await part.subscribe("rings", "Ring")
        await part.advertise("receipts", "Receipt")
        for shop in (shop1, shop2):
            client = await shop.participant()
            for topic in ("Order", "Ring", "Payment"):
                await client.advertise(topic, topic)

        async def keep(shop: Bus, number: int) -> Outcome:
            found = outcomes[shop.name, number] = await sell(shop, kind, number)
            return found

        async def until_committed(shop: Bus, number: int) -> tuple[str, int]:
            while not isinstance(await keep(shop, number), Committed):
                number += 1
            return shop.name, number

        async def work(shop: Bus) -> None:
            await until_committed(shop, 1_000)  # from now on the till is known everywhere
            for number in range(count):
                await keep(shop, number)

        async def kill() -> None:
            while not any(isinstance(one, Committed) for one in outcomes.values()):
                await asyncio.sleep(0.01)
            for _ in range(kill_count):
                await asyncio.sleep(rng.random() * KILL_S)
                await asyncio.to_thread(nodes.kill, rng.choice(NODES))
                said.killed_count += 1

        await asyncio.gather(work(shop1), work(shop2), kill())
        ends = {await until_committed(shop, 2_000) for shop in (shop1, shop2)}
        got = await asyncio.gather(read(one, ends), read(two, ends))
    _judge(outcomes, got, said)


def _judge(
    outcomes: dict[tuple[str, int], Outcome], got: list[list[tuple[str, str, int]]], said: Said
) -> None:
    if got[0] != got[1]:
        said.wrong.append("two subscribers of the total order read different sequences")
    for sale, outcome in sorted(outcomes.items()):
        committed = isinstance(outcome, Committed)
        said.committed_count += committed
        said.aborted_count += not committed
        wanted = list(TOPICS) if committed else []
        for events in got:
            topics = [topic for topic, *which in events if tuple(which) == sale]
            if topics != wanted:
                said.wrong.append(f"{sale}: {outcome}, and {topics or 'nothing'} was read")
