"""Transactions live: in one event loop, and over TCP with brokers that are killed at random."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from concordant.errors import UsageError
from concordant.model.event import Event
from concordant.net.carrier import MemoryCarrier
from concordant.net.host import Place
from concordant.net.transactions import Answer, Door, host_broker
from concordant.route.filter import filter_of
from concordant.transact.actions import Aborted, Committed
from concordant.transact.client import Triggered
from concordant.transact.options import TransactOptions
from tests.network.dispatching import run_dispatching, work


class Office:
    """Three brokers in a line and four clients, all in this loop."""

    def __init__(self, *, isolated: bool, folder: Path | None = None) -> None:
        self.carrier = MemoryCarrier()
        self.got: dict[str, list[Event]] = {}
        near = {"B1": ("B2",), "B2": ("B1", "B3"), "B3": ("B2",)}
        self.brokers: list[Place] = [
            host_broker(
                name,
                self.carrier,
                neighbours=others,
                isolated=isolated,
                parent="" if name == "B2" else "B2",
                folder=folder / name if folder else None,
            )
            for name, others in near.items()
        ]
        self.env = self.door("env", "B1")
        self.dispatcher = self.door("dispatcher", "B3", self.dispatch)
        self.agent = self.door("agent", "B2", self.accept)

    def door(self, name: str, broker: str, handler=None) -> Door:
        events = self.got.setdefault(name, [])
        return Door(name, broker, self.carrier, take=events.append, handler=handler)

    async def dispatch(self, trigger: Triggered, answer: Answer) -> None:
        await answer.trigger("agent", "Assign", {"x": trigger.event.attributes["x"]})
        await answer.unsubscribe("work")

    async def accept(self, trigger: Triggered, answer: Answer) -> None:
        await answer.subscribe("work", work(trigger.event.attributes["x"]))

    async def set_up(self) -> None:
        await self.env.advertise("work", filter_of("Work"))
        await self.dispatcher.advertise("assign", filter_of("Assign"))
        await self.agent.subscribe("assign", filter_of("Assign"))
        await self.dispatcher.subscribe("work", work(7))
        await self.until(lambda: len(self.tables("B1")) == 1)

    def tables(self, broker: str) -> dict[str, object]:
        place = next(one for one in self.brokers if one.address == broker)
        return dict(place.machine.inner.router.tables.subscriptions)  # type: ignore[attr-defined]

    async def until(self, holds) -> None:
        async with asyncio.timeout(10):
            while not holds():
                await asyncio.sleep(0.005)

    async def stop(self) -> None:
        for door in (self.env, self.dispatcher, self.agent):
            await door.stop()
        for place in self.brokers:
            await place.stop()


@pytest.mark.parametrize("kind", ["open", "isolated"])
async def test_an_instance_is_dispatched_in_a_block(kind: str, tmp_path: Path) -> None:
    office = Office(isolated=kind == "isolated", folder=tmp_path)
    try:
        await office.set_up()
        async with office.env.transaction(kind) as tx:  # type: ignore[arg-type]
            await tx.trigger("dispatcher", "Work", {"process": "p", "x": 7, "step": 0})
            await tx.publish("Work", {"process": "p", "x": 7, "step": 1})
        assert tx.outcome == Committed(tx.name)
        await office.until(lambda: office.got["agent"])
        await office.env.publish("Work", {"process": "p", "x": 7, "step": 2})
        await office.until(lambda: office.got["agent"][-1].attributes.get("step") == 2)
        steps = [e.attributes["step"] for e in office.got["agent"] if e.topic == "Work"]
        assert steps == [1, 2]
        assert [e.attributes["step"] for e in office.got["dispatcher"]] == [0]
    finally:
        await office.stop()


async def test_a_block_that_raises_aborts_and_leaves_no_trace() -> None:
    office = Office(isolated=True)
    try:
        await office.set_up()
        with pytest.raises(RuntimeError, match="changed my mind"):
            async with office.env.transaction("isolated") as tx:
                await tx.trigger("dispatcher", "Work", {"process": "p", "x": 7, "step": 0})
                raise RuntimeError("changed my mind")
        assert tx.outcome == Aborted(tx.name, "its block raised RuntimeError")
        await office.env.publish("Work", {"process": "p", "x": 7, "step": 2})
        await office.until(lambda: office.got["dispatcher"])
        assert [e.attributes["step"] for e in office.got["dispatcher"]] == [2]
        assert office.got["agent"] == []
    finally:
        await office.stop()


async def test_a_participant_without_a_handler_makes_the_transaction_abort() -> None:
    office = Office(isolated=False)
    try:
        await office.set_up()
        await office.env.subscribe("assign", filter_of("Assign"))
        await office.until(lambda: len(office.tables("B3")) >= 3)
        async with office.dispatcher.transaction("open") as tx:
            await tx.trigger("env", "Assign", {"x": 1})
        assert tx.outcome == Aborted(tx.name, "refused: a trigger was not answered")
    finally:
        await office.stop()


async def test_a_static_block_is_a_plan_that_can_be_printed_before_it_runs() -> None:
    office = Office(isolated=False)
    try:
        await office.set_up()
        async with office.env.transaction("static") as tx:
            taken = tx.trigger("dispatcher", "Work", {"process": "p", "x": 7, "step": 0})
            taken.trigger("agent", "Assign", {"x": 7}).subscribe("work", work(7))
            taken.unsubscribe("work")
            tx.publish("Work", {"process": "p", "x": 7, "step": 1})
            assert str(tx.plan).splitlines()[2:4] == [
                '1.1.1  agent: subscribe work (Work with process = "p", x = 7)',
                "1.2    dispatcher: unsubscribe work",
            ]
        assert isinstance(tx.outcome, Committed)
        await office.until(lambda: office.got["agent"])
        steps = [e.attributes["step"] for e in office.got["agent"] if e.topic == "Work"]
        assert steps == [1]
    finally:
        await office.stop()


async def test_a_static_block_that_raises_asks_nothing_of_anybody() -> None:
    office = Office(isolated=False)
    try:
        await office.set_up()
        with pytest.raises(RuntimeError, match="changed my mind"):
            async with office.env.transaction("static") as tx:
                tx.publish("Work", {"process": "p", "x": 7, "step": 1})
                raise RuntimeError("changed my mind")
        with pytest.raises(UsageError, match="1 to 1,000 actions"):
            async with office.env.transaction("static"):
                pass
        await office.env.publish("Work", {"process": "p", "x": 7, "step": 2})
        await office.until(lambda: office.got["dispatcher"])
        assert [e.attributes["step"] for e in office.got["dispatcher"]] == [2]
    finally:
        await office.stop()


async def test_who_takes_nothing_is_cut_off_and_told_when_it_is_back() -> None:
    carrier = MemoryCarrier()
    broker = host_broker("B1", carrier, options=TransactOptions(mailbox_count_max=2))
    got: list[object] = []
    cut: list[tuple[str, ...]] = []
    shop = Door("shop", "B1", carrier)
    till = Door(
        "till", "B1", carrier, take=lambda one: got.append(one.attributes["n"]), cut=cut.append
    )
    try:
        await shop.advertise("orders", filter_of("Order"))
        await till.subscribe("orders", filter_of("Order"))
        async with asyncio.timeout(10):
            while not broker.machine.inner.router.tables.subscriptions:  # type: ignore[attr-defined]
                await broker.stepped()
            asleep = carrier._places.pop("till")
            for n in range(4):
                async with shop.transaction("static") as tx:
                    tx.publish("Order", {"n": n})
                assert isinstance(tx.outcome, Committed)
            assert not cut
            carrier.add(asleep)
            while not cut:
                await asleep.stepped()
        assert got == [0, 1, 2]  # the fourth found nobody
        assert cut == [("orders",)]
    finally:
        for one in (shop, till, broker):
            await one.stop()


@pytest.mark.parametrize("kind", ["static", "open", "isolated"])
def test_brokers_that_are_killed_lose_nothing_that_was_committed(kind: str, tmp_path: Path) -> None:
    said = asyncio.run(run_dispatching(kind, tmp_path, rng=Random(1), count=9, kill_count=3))
    assert said.wrong == []
    assert said.killed_count == 3
    assert said.committed_count > 0
