"""Runs: what is published together is sent, numbered and signed together, each event with its own
number."""

from __future__ import annotations

import pytest

from concordant.errors import PeerError
from concordant.machine.effects import Disseminate, Effect, Send
from concordant.machine.inputs import Command, Received, Started, TimerFired
from concordant.machine.requests import Publish
from concordant.model.event import Event
from concordant.order.sequencing.client import SEND, SequencingClient
from concordant.order.sequencing.messages import (
    RUN_COUNT_MAX,
    Create,
    Created,
    Done,
    Fill,
    Parcel,
    SequencingOptions,
    Signed,
)
from concordant.order.sequencing.publisher import Pipeline
from concordant.order.sequencing.sequencer import TopicSequencer

SEQUENCERS = {"a": "sequencer-a", "b": "sequencer-b"}
HELD = {"s": ("a", "b"), "t": ("a", "b")}


def events(first: int, last: int, topic: str = "b") -> tuple[Event, ...]:
    return tuple(Event(topic, "p", n, n) for n in range(first, last + 1))


def sequencer(stamped_with: tuple[str, ...] | None = None, **options: int) -> TopicSequencer:
    found = TopicSequencer(
        "b",
        sequencers=SEQUENCERS,
        subscriptions=HELD,
        stamped_with=stamped_with,
        options=SequencingOptions(**options),  # type: ignore[arg-type]
    )
    found.handle(0, Started())
    return found


def contents(effects: list[Effect], to: str) -> list[object]:
    sent = [m for e in effects if isinstance(e, Send) and e.to == to for m in e.messages]
    return [m.content for m in sent if isinstance(m, Parcel)]


def signed(effects: list[Effect]) -> list[Signed]:
    found = [m for e in effects if isinstance(e, Disseminate) for m in e.messages]
    return [one for one in found if isinstance(one, Signed)]


def test_what_is_published_at_one_instant_is_one_message() -> None:
    machine = SequencingClient("s", sequencers=SEQUENCERS, publishes=None)
    machine.handle(0, Started())
    machine.handle(1, Command((Publish("b"),)))
    machine.handle(1, Command((Publish("b"), Publish("b"))))
    effects = machine.handle(1, TimerFired((SEND,)))
    (run,) = contents(effects, "sequencer-b")
    assert isinstance(run, Create)
    assert (run.n, [event.seq for event in run.events]) == (1, [1, 2, 3])


def test_a_run_ends_where_the_topic_changes_and_where_it_is_long() -> None:
    pipeline = Pipeline(one_topic=False)
    pipeline.add([*events(1, 2, "a"), *events(3, 3), *events(4, 4 + RUN_COUNT_MAX, "a")])
    assert [(run.n, len(run.events)) for run in pipeline.sendable()] == [
        (1, 2),
        (3, 1),
        (4, RUN_COUNT_MAX),
        (4 + RUN_COUNT_MAX, 1),
    ]


def test_a_run_is_signed_once_and_every_event_has_its_number() -> None:
    machine = sequencer()
    effects = machine.handle(1, Received("p", (Parcel(1, 1, Create(5, events(5, 7))),)))
    assert contents(effects, "sequencer-a") == [Fill(0, "b", 3, {}, ("a",))]
    done = Received("sequencer-a", (Parcel(0, 1, Done(3, {"a": 9})),))
    effects = machine.handle(2, done)
    assert [(one.n, one.timestamp) for one in signed(effects)] == [
        (n, {"b": n, "a": 9}) for n in (1, 2, 3)
    ]
    assert contents(effects, "p") == [Created("b", 7)]


@pytest.mark.parametrize("stamped_with", [None, ("b",)], ids=["signed", "stamped"])
def test_a_new_life_may_cut_its_runs_elsewhere(stamped_with: tuple[str, ...] | None) -> None:
    machine = sequencer(stamped_with)
    machine.handle(1, Received("p", (Parcel(1, 1, Create(5, events(5, 7))),)))
    if stamped_with is None:
        machine.handle(2, Received("sequencer-a", (Parcel(0, 1, Done(3, {})),)))
    effects = machine.handle(3, Received("p", (Parcel(2, 1, Create(6, events(6, 9))),)))
    assert contents(effects, "p")[0] == Created("b", 7)
    if stamped_with is None:
        effects = machine.handle(4, Received("sequencer-a", (Parcel(0, 2, Done(5, {})),)))
    assert [(one.n, one.event.seq) for one in signed(effects)] == [(4, 8), (5, 9)]


def test_a_run_that_is_half_done_is_not_confirmed() -> None:
    machine = sequencer()
    machine.handle(1, Received("p", (Parcel(1, 1, Create(5, events(5, 7))),)))
    effects = machine.handle(2, Received("p", (Parcel(2, 1, Create(5, events(5, 7))),)))
    assert contents(effects, "p") == []


@pytest.mark.parametrize(
    "wrong", [(), events(1, 1, "a"), events(1, RUN_COUNT_MAX + 1)], ids=["none", "other", "many"]
)
def test_a_run_that_no_client_sends_is_refused(wrong: tuple[Event, ...]) -> None:
    machine = sequencer()
    before = machine.snapshot()
    with pytest.raises(PeerError):
        machine.handle(1, Received("p", (Parcel(1, 1, Create(1, wrong)),)))
    assert machine.snapshot() == before


def test_bounds_count_events_and_not_runs() -> None:
    machine = sequencer(queue_count_max=3)
    runs = (Parcel(1, 1, Create(1, events(1, 3))), Parcel(1, 2, Create(4, events(4, 4))))
    effects = machine.handle(1, Received("p", runs))
    assert contents(effects, "sequencer-a") == [Fill(0, "b", 3, {}, ("a",))]
