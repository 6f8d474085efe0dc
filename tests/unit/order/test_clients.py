"""Clients of the levels, one step at a time."""

from __future__ import annotations

import pytest

from concordant.errors import UsageError
from concordant.machine.detector import Suspected
from concordant.machine.effects import Deliver, Disseminate, Effect, Persist, Send
from concordant.machine.inputs import Command, Received, Started, TimerFired
from concordant.machine.requests import Install, Publish
from concordant.machine.view import View
from concordant.model.event import Event
from concordant.order.broadcast.sequencer import SequencedClient, Sequencer
from concordant.order.client import ClientOptions
from concordant.order.clock import ClockClient
from concordant.order.fifo import FifoClient
from concordant.order.streams import Ask, Mark, Numbered

T = ("a", "T")
SOURCES = {"T": ("a", "b")}


def delivered(effects: list[Effect]) -> list[tuple[str, bool]]:
    return [
        (one.events[0].id, one.in_order)
        for effect in effects
        if isinstance(effect, Deliver)
        for one in effect.deliveries
    ]


def numbered(source: str, n: int, time: int) -> Numbered:
    return Numbered((source, "T"), n, Event("T", source, n, time))


def test_a_gap_is_waited_for_and_asked_for() -> None:
    client = FifoClient("s", topics=("T",), sources=SOURCES)
    client.handle(0, Started())
    assert delivered(client.handle(1, Received("a", (numbered("a", 2, 20),)))) == []
    asked = client.handle(30_000, TimerFired(("ask",)))
    assert Send("a", (Ask(T, 1, 1),)) in asked
    found = client.handle(40_000, Received("a", (numbered("a", 1, 10),)))
    assert delivered(found) == [("a:1", True), ("a:2", True)]


def test_an_event_is_durable_before_it_leaves() -> None:
    client = FifoClient("a", publishes=("T",))
    client.handle(0, Started())
    effects = client.handle(5, Command((Publish("T"),)))
    kinds = [type(effect) for effect in effects]
    assert kinds.index(Persist) < kinds.index(Disseminate)


def test_the_clock_waits_for_the_slowest_source() -> None:
    client = ClockClient("s", topics=("T",), sources=SOURCES)
    client.handle(0, Started())
    assert delivered(client.handle(1, Received("a", (numbered("a", 1, 100),)))) == []
    assert delivered(client.handle(2, Received("b", (numbered("b", 1, 50),)))) == [("b:1", True)]
    found = client.handle(3, Received("b", (Mark(("b", "T"), 1, 100),)))
    assert delivered(found) == [("a:1", True)]


def test_a_mark_counts_only_when_everything_before_it_is_here() -> None:
    client = ClockClient("s", topics=("T",), sources=SOURCES)
    client.handle(0, Started())
    client.handle(1, Received("a", (numbered("a", 1, 100),)))
    assert delivered(client.handle(2, Received("b", (Mark(("b", "T"), 1, 200),)))) == []
    found = client.handle(3, Received("b", (numbered("b", 1, 60),)))
    assert delivered(found) == [("b:1", True), ("a:1", True)]


def test_a_suspected_source_is_not_waited_for_and_its_events_are_late_then() -> None:
    client = ClockClient("s", topics=("T",), sources=SOURCES)
    client.handle(0, Started())
    client.handle(1, Received("a", (numbered("a", 1, 100),)))
    assert delivered(client.handle(2, Received("s/detector", (Suspected(("b",)),)))) == [
        ("a:1", True)
    ]
    assert delivered(client.handle(3, Received("b", (numbered("b", 1, 50),)))) == [("b:1", False)]


def test_who_has_left_the_view_is_not_waited_for_after_a_crash_either() -> None:
    client = ClockClient("s", topics=("T",), sources=SOURCES)
    client.handle(0, Started())
    client.handle(1, Received("a", (numbered("a", 1, 100),)))
    effects = client.handle(2, Command((Install(View.of(1, ["a"])),)))
    assert delivered(effects) == [("a:1", True)]
    assert delivered(client.handle(3, Command((Install(View.of(1, ["b"])),)))) == []  # not newer
    records = [r for e in effects if isinstance(e, Persist) for r in e.records]
    reborn = ClockClient("s", topics=("T",), sources=SOURCES)
    reborn.handle(4, Started(tuple(records), taken_count=1))
    found = reborn.handle(5, Received("a", (numbered("a", 2, 200),)))
    assert delivered(found) == [("a:2", True)]


def test_a_full_merge_lets_in_only_what_the_frontier_waits_for() -> None:
    options = ClientOptions(held_count_max=3)
    client = ClockClient("s", topics=("T",), sources=SOURCES, options=options)
    client.handle(0, Started())
    for n in range(1, 10):
        client.handle(n, Received("a", (numbered("a", n, 10 * n),)))
    assert client.held_count == 4  # three events, and the gap that the fourth left
    found = client.handle(20, Received("b", (numbered("b", 1, 25),)))
    assert delivered(found) == [("a:1", True), ("a:2", True), ("b:1", True)]


def test_a_publisher_that_came_back_does_not_break_the_word_of_its_marks() -> None:
    client = ClockClient("a", publishes=("T",))
    records = [
        r for e in client.handle(1_000, Started()) if isinstance(e, Persist) for r in e.records
    ]
    effects = client.handle(1_000, TimerFired(("mark",)))
    records += [r for e in effects if isinstance(e, Persist) for r in e.records]
    marks = [m for e in effects if isinstance(e, Disseminate) for m in e.messages]
    reborn = ClockClient("a", publishes=("T",))
    reborn.handle(0, Started(tuple(records)))  # and its clock was set back
    published = reborn.handle(1, Command((Publish("T"),)))
    event = next(m.event for e in published if isinstance(e, Disseminate) for m in e.messages)
    assert event.time > marks[0].time


def test_a_source_cannot_publish_back_in_time_or_to_a_foreign_topic() -> None:
    client = FifoClient("a", publishes=("T",))
    client.handle(0, Started())
    client.handle(1, Command((Publish("T", time=100),)))
    before = client.snapshot()
    for bad in (Publish("T", time=100), Publish("U")):
        with pytest.raises(UsageError):
            client.handle(2, Command((Publish("T"), bad)))
        assert client.snapshot() == before


def test_publishing_is_refused_when_the_way_to_the_sequencer_is_full() -> None:
    client = SequencedClient("a", publishes=("T",), options=ClientOptions(outbox_count_max=2))
    client.handle(0, Started())
    client.handle(1, Command((Publish("T"), Publish("T"))))
    with pytest.raises(UsageError, match="no room"):
        client.handle(2, Command((Publish("T"),)))


def test_a_repeated_event_keeps_its_position() -> None:
    sequencer = Sequencer("sequencer")
    sequencer.handle(0, Started())
    message = Numbered(("a", "broadcast"), 1, Event("T", "a", 1, 10))
    first = sequencer.handle(1, Received("a", (message,)))
    again = sequencer.handle(2, Received("a", (message,)))
    assert any(isinstance(effect, Disseminate) for effect in first)
    assert not any(isinstance(effect, Disseminate) for effect in again)
