"""Clients of the levels, one step at a time."""

from __future__ import annotations

import pytest

from concordant.errors import UsageError
from concordant.machine.detector import Detector, Heartbeat, Suspected, Watch
from concordant.machine.effects import (
    Deliver,
    Delivery,
    Disseminate,
    Effect,
    Listen,
    Persist,
    Send,
)
from concordant.machine.inputs import (
    Command,
    Listening,
    Received,
    Record,
    Started,
    TimerFired,
)
from concordant.machine.requests import Install, Publish, Retire, Subscribe
from concordant.machine.saved import Compact, saved_state, saving
from concordant.machine.view import View
from concordant.model.event import Event
from concordant.order.broadcast.sequencer import SequencedClient, Sequencer
from concordant.order.client import Client, ClientOptions, Left
from concordant.order.clock import ClockClient
from concordant.order.fifo import FifoClient
from concordant.order.none import NoneClient
from concordant.order.streams import Ask, Here, Mark, Numbered, Where

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


def events_of(effects: list[Effect]) -> list[Event]:
    return [
        message.event
        for effect in effects
        if isinstance(effect, Disseminate | Send)
        for message in effect.messages
        if isinstance(message, Numbered)
    ]


def records_of(effects: list[Effect]) -> list[Record]:
    return [record for one in effects if isinstance(one, Persist) for record in one.records]


@pytest.mark.parametrize("kind", [FifoClient, ClockClient, SequencedClient])
def test_a_client_publishes_for_guests_and_numbers_each_of_them(kind: type[Client]) -> None:
    client = kind("n", publishes=None)
    client.handle(0, Started())
    asked = (Publish("T", source="shop"), Publish("U"), Publish("T", source="shop"))
    effects = client.handle(5, Command(asked))
    assert sorted(event.id for event in events_of(effects)) == ["n:1", "shop:1", "shop:2"]
    reborn = kind("n", publishes=None)
    reborn.handle(9, Started(tuple(records_of(effects))))
    assert (reborn.seq_of("shop"), reborn.seq_of(), reborn.seq_of("stranger")) == (2, 1, 0)
    again = events_of(reborn.handle(9, Command((Publish("T", source="shop"),))))
    assert again[-1].id == "shop:3"


def test_each_guest_has_its_own_times_unless_the_order_is_by_time() -> None:
    late, early = Publish("T", time=900, source="a"), Publish("T", time=100, source="b")
    fifo = FifoClient("n", publishes=None)
    fifo.handle(0, Started())
    assert [event.time for event in events_of(fifo.handle(1, Command((late, early))))] == [900, 100]
    clock = ClockClient("n", publishes=None)
    clock.handle(0, Started())
    with pytest.raises(UsageError, match="100 is too early"):
        clock.handle(1, Command((late, early)))


def test_a_stream_is_found_again_after_a_crash_though_another_numbered_it() -> None:
    client = FifoClient("s", topics=("T",), sources=("n",))
    client.handle(0, Started())
    sent = tuple(Numbered(("n", "T"), n, Event("T", "guest", 40 + n, n)) for n in (1, 2))
    effects = client.handle(1, Received("n", sent))
    reborn = FifoClient("s", topics=("T",), sources=("n",))
    reborn.handle(2, Started(tuple(records_of(effects)), taken_count=2))
    third = Numbered(("n", "T"), 3, Event("T", "guest", 43, 3))
    found = reborn.handle(3, Received("n", (*sent, third)))
    assert delivered(found) == [("guest:43", True)]


def test_a_first_subscription_begins_where_the_sequencer_is() -> None:
    client = SequencedClient("s", sequencer="q")
    client.handle(0, Started())
    listens = client.handle(1, Command((Subscribe(("T",)),)))
    assert Listen(("broadcast",)) in listens
    asked = client.handle(2, Listening(("broadcast",)))
    assert asked == [Send("q", (Where("broadcast"),))]
    stream = ("q", "broadcast")
    early = tuple(Numbered(stream, n, Event("T", "a", n, n)) for n in (7, 9))
    assert delivered(client.handle(3, Received("q", early))) == []
    found = client.handle(4, Received("q", (Here(Mark(stream, 8)),)))
    assert delivered(found) == [("a:9", True)]
    assert client.held_count == 0


def test_a_stream_that_somebody_follows_is_marked_after_a_crash_though_it_is_empty() -> None:
    client = ClockClient("n", publishes=None)
    client.handle(0, Started())
    records = records_of(client.handle(1, Received("s", (Where("T"),))))
    reborn = ClockClient("n", publishes=None)
    reborn.handle(2, Started(tuple(records)))
    marks = [m for e in reborn.handle(3, TimerFired(("mark",))) for m in getattr(e, "messages", ())]
    assert [mark.stream for mark in marks] == [("n", "T")]


def test_who_watches_is_told_of_suspicions_that_are_older() -> None:
    detector = Detector("n", view=View.of(1, ["m", "n"]))
    detector.handle(0, Started())
    assert not [e for e in detector.handle(10**6, TimerFired(("look",))) if isinstance(e, Send)]
    told = detector.handle(10**6, Received("s", (Watch(),)))
    assert told == [Send("s", (Suspected(("m",)),))]
    detector.handle(10**6, Received("s", (Watch(wanted=False),)))
    assert detector.handle(10**6, Received("m", (Heartbeat("m"),))) == []


@pytest.mark.parametrize("kind", [NoneClient, FifoClient, SequencedClient, ClockClient])
def test_a_snapshot_takes_the_place_of_the_log(kind: type[Client]) -> None:
    client = kind("n", publishes=None, topics=("T",), sources=("n",))
    records = records_of(client.handle(0, Started()))
    records += records_of(client.handle(5, Command(tuple(Publish("T") for _ in range(9)))))
    (saved,) = client.handle(6, Command((Compact(0),)))
    assert isinstance(saved, Persist)
    assert saved.replaces
    later = records_of(client.handle(7, Command((Publish("T", source="guest"),))))
    by_log, by_snapshot = (kind("n", publishes=None, topics=("T",)) for _ in range(2))
    by_log.handle(9, Started((*records, *later)))
    by_snapshot.handle(9, Started((*saved.records, *later)))
    for machine in (by_log, by_snapshot):
        assert (machine.seq_of(), machine.seq_of("guest")) == (9, 1)
    asked = Received("s", (Ask(("n", "T"), 1, 99),))
    if kind is FifoClient:
        assert by_log.handle(10, asked) == by_snapshot.handle(10, asked)


def test_no_snapshot_is_taken_while_deliveries_are_on_their_way() -> None:
    client = FifoClient("s", topics=("T",), sources=SOURCES)
    client.handle(0, Started())
    client.handle(1, Received("a", tuple(numbered("a", n, n) for n in (1, 2, 3))))
    assert client.handle(2, Command((Compact(1),))) == []
    waiting = (Delivery((numbered("a", 3, 3).event,), 3),)
    (saved,) = client.handle(2, Command((Compact(2, waiting),)))
    later = records_of(client.handle(3, Received("a", (numbered("a", 4, 4),))))
    reborn = FifoClient("s", topics=("T",), sources=SOURCES)
    found = reborn.handle(4, Started((*saved.records, *later), taken_count=2))
    assert delivered(found) == [("a:3", True), ("a:4", True)]
    assert [d.position for e in found if isinstance(e, Deliver) for d in e.deliveries] == [3, 4]


def test_a_sequencer_goes_on_from_its_snapshot() -> None:
    sequencer = Sequencer("q")
    sequencer.handle(0, Started())
    sent = tuple(Numbered(("a", "broadcast"), n, Event("T", "a", n, n)) for n in (1, 2, 3))
    sequencer.handle(1, Received("a", sent))
    (saved,) = sequencer.handle(2, Command((Compact(),)))
    reborn = Sequencer("q")
    reborn.handle(3, Started(saved.records))
    assert not records_of(reborn.handle(4, Received("a", sent)))
    fourth = Numbered(("a", "broadcast"), 4, Event("T", "a", 4, 4))
    found = reborn.handle(5, Received("a", (fourth,)))
    assert [m.n for e in found if isinstance(e, Disseminate) for m in e.messages] == [4]
    with pytest.raises(UsageError):
        sequencer.handle(6, Command((Compact(), Publish("T"))))


def test_a_large_state_is_saved_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concordant.machine.saved.PART_BYTES_MAX", 10)
    persist = saving(b"x" * 25, Compact(7), 0)
    assert [one.last for one in persist.records] == [False, False, True]
    state, last, rest = saved_state((*persist.records, Left(("T",))))
    assert (state, last and last.taken_count, rest) == (b"x" * 25, 7, (Left(("T",)),))


def test_a_retired_guest_is_forgotten_after_a_crash_too() -> None:
    client = FifoClient("n", publishes=None)
    client.handle(0, Started())
    asked = (Publish("T", source="a"), Publish("T", source="b"), Retire("a"), Retire("stranger"))
    records = records_of(client.handle(1, Command(asked)))
    reborn = FifoClient("n", publishes=None)
    reborn.handle(2, Started(tuple(records)))
    for machine in (client, reborn):
        assert (machine.guest_count, machine.seq_of("a"), machine.seq_of("b")) == (1, 0, 1)
