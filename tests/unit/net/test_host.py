"""Machines at work in real time: one order for all, and nothing lost or doubled by a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from concordant.errors import UsageError
from concordant.machine.effects import Delivery
from concordant.machine.requests import Publish, Subscribe
from concordant.net.carrier import MemoryCarrier
from concordant.net.host import Place
from concordant.order.broadcast.sequencer import Ordered, SequencedClient, Sequencer, Settled
from concordant.order.client import Delivered, Joined, Left, Published
from concordant.order.fifo import FifoClient
from concordant.order.streams import Mark

RECORDS = (Published, Delivered, Joined, Left, Ordered, Settled)
TOPICS = ("A", "B")


class Application:
    """Takes deliveries, and can be waited for."""

    def __init__(self) -> None:
        self.taken: list[str] = []
        self.positions: list[int] = []
        self._more = asyncio.Event()

    def take(self, deliveries: Sequence[Delivery]) -> None:
        self.taken += [event.id for one in deliveries for event in one.events]
        self.positions += [one.position for one in deliveries]
        self._more.set()

    async def has(self, count: int) -> list[str]:
        async with asyncio.timeout(20):
            while len(self.taken) < count:
                self._more.clear()
                await self._more.wait()
        return self.taken


class Cluster:
    """A sequencer, two publishers and two subscribers in one event loop, each with its disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.carrier = MemoryCarrier()
        self.applications = {"x": Application(), "y": Application()}
        self.places: dict[str, Place] = {}
        for name in ("sequencer", "p", "q", "x", "y"):
            self.start(name)

    def start(self, name: str) -> None:
        machine: Sequencer | SequencedClient
        application = self.applications.get(name)
        if name == "sequencer":
            machine = Sequencer(name)
        else:
            machine = SequencedClient(
                name,
                topics=TOPICS if application else (),
                publishes=TOPICS if not application else (),
                sources=dict.fromkeys(TOPICS, ("p", "q")),
                sequencer="sequencer",
            )
        self.places[name] = Place(
            name,
            machine,
            self.carrier,
            take=application.take if application else None,
            taken_count=len(application.taken) if application else 0,
            folder=self.folder / name,
            records=RECORDS,
        )
        self.carrier.add(self.places[name])

    async def restart(self, name: str) -> None:
        """As after a crash: what is not on the disk is gone."""
        self.carrier.remove(name)
        await self.places[name].stop()
        self.start(name)

    async def stop(self) -> None:
        for place in self.places.values():
            await place.stop()


async def test_two_subscribers_see_one_order_and_all_of_it(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    for number in range(100):
        cluster.places["p"].command(Publish("A", {"n": number}), Publish("B", {"n": number}))
        cluster.places["q"].command(Publish("A", {"n": number}))
        if number % 20 == 0:
            await asyncio.sleep(0)
    one = await cluster.applications["x"].has(300)
    other = await cluster.applications["y"].has(300)
    assert one == other
    assert sorted(one) == sorted(
        [f"p:{n}" for n in range(1, 201)] + [f"q:{n}" for n in range(1, 101)]
    )
    assert cluster.applications["x"].positions == list(range(1, 301))
    await cluster.stop()


@pytest.mark.parametrize("name", ["sequencer", "p", "x"])
async def test_a_place_that_comes_back_loses_nothing_and_doubles_nothing(
    tmp_path: Path, name: str
) -> None:
    cluster = Cluster(tmp_path)
    for number in range(50):
        for source in ("p", "q"):
            cluster.places[source].command(Publish("A", {"n": number}))
        if number % 10 == 5:
            await cluster.applications["y"].has(number // 2)
            await cluster.restart(name)
    one = await cluster.applications["x"].has(100)
    other = await cluster.applications["y"].has(100)
    assert one == other
    assert len(set(one)) == 100
    await cluster.stop()


async def test_without_a_disk_messages_travel_at_once() -> None:
    carrier = MemoryCarrier()
    application = Application()
    sources = {"A": ("p",)}
    publisher = Place("p", FifoClient("p", publishes=("A",), sources=sources), carrier)
    subscriber = Place("s", FifoClient("s", sources=sources), carrier, take=application.take)
    for place in (publisher, subscriber):
        carrier.add(place)
    subscriber.command(Subscribe(("A",)))
    await asyncio.sleep(0.01)
    for number in range(10):
        publisher.command(Publish("A", {"n": number}))
    assert await application.has(10) == [f"p:{n}" for n in range(1, 11)]
    for place in (publisher, subscriber):
        await place.stop()


async def test_a_request_that_cannot_be_met_raises_and_a_bad_message_is_counted() -> None:
    carrier = MemoryCarrier()
    place = Place("p", FifoClient("p", publishes=("A",)), carrier)
    with pytest.raises(UsageError, match="does not publish to the topic 'B'"):
        place.command(Publish("B"))
    place.received("stranger", (Settled(3),))
    assert place.refused_count == 1
    place.received("stranger", (Mark(("p", "A"), 0),))
    await place.stop()
    with pytest.raises(UsageError, match="has been stopped"):
        place.command(Publish("A"))


async def test_a_write_that_fails_ends_the_machine_before_anything_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster(tmp_path)
    await cluster.places["p"].settled()

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("concordant.net.log.os.fdatasync", full)
    cluster.places["p"].command(Publish("A"))
    with pytest.raises(UsageError, match="No space left"):
        await cluster.places["p"].settled()
    monkeypatch.undo()
    with pytest.raises(UsageError, match="No space left"):
        cluster.places["p"].command(Publish("A"))
    cluster.places["q"].command(Publish("A"))
    assert await cluster.applications["x"].has(1) == ["q:1"]
    for name in ("sequencer", "q", "x", "y"):
        await cluster.places[name].stop()
