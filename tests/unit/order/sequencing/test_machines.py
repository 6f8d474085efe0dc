"""Sequencers, clients and the coordinator, one step at a time; their limits."""

from __future__ import annotations

import msgspec
import pytest

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Deliver, Disseminate, Effect, Persist, Send, SetTimer
from concordant.machine.inputs import Command, Message, Received, Record, Started, TimerFired
from concordant.machine.requests import Publish, Subscribe
from concordant.machine.saved import Compact, Saved
from concordant.model.event import Event
from concordant.order.sequencing.client import SEND, SequencingClient
from concordant.order.sequencing.coordinator import Coordinator
from concordant.order.sequencing.messages import (
    Abort,
    Begin,
    Commit,
    Condensed,
    Create,
    Created,
    Done,
    Enter,
    Fill,
    Handled,
    Leave,
    Link,
    Parcel,
    Prepare,
    Prepared,
    Receipt,
    Renew,
    Rerank,
    SequencingOptions,
    Signed,
)
from concordant.order.sequencing.sequencer import TopicSequencer
from concordant.order.streams import Ask, Gone, Mark
from concordant.wire.messages import Codec

SEQUENCERS = {"a": "sequencer-a", "b": "sequencer-b"}
BOTH = {"s": ("a", "b"), "t": ("a", "b")}


def sequencer(topic: str, **options: int) -> TopicSequencer:
    found = TopicSequencer(
        topic,
        sequencers=SEQUENCERS,
        subscriptions=BOTH,
        options=SequencingOptions(**options),
    )
    found.handle(0, Started())
    return found


def create(n: int, topic: str = "a", life: int = 1) -> Parcel:
    return Parcel(life, n, Create(n, (Event(topic, "p", n, n),)))


def sent(effects: list[Effect], to: str) -> list[Message]:
    return [m for e in effects if isinstance(e, Send) and e.to == to for m in e.messages]


def contents(effects: list[Effect], to: str) -> list[Message]:
    return [m.content for m in sent(effects, to) if isinstance(m, Parcel)]


def published(machine: SequencingClient, now: int, *topics: str) -> list[Effect]:
    """What publishing to these topics leads to, all at once."""
    effects = machine.handle(now, Command(tuple(map(Publish, topics))))
    return [*effects, *machine.handle(now, TimerFired((SEND,)))]


def records(effects: list[Effect]) -> list[Record]:
    kept: list[Record] = []
    for effect in effects:
        if isinstance(effect, Persist):
            kept = [*(() if effect.replaces else kept), *effect.records]
    return kept


def disseminated(effects: list[Effect]) -> list[Message]:
    return [m for e in effects if isinstance(e, Disseminate) for m in e.messages]


# --- sequencers -----------------------------------------------------------------------------------


def test_the_lowest_sequencer_disseminates_at_once_and_tells_the_publisher() -> None:
    effects = sequencer("a").handle(1, Received("p", (create(1),)))
    kinds = [type(effect) for effect in effects]
    assert kinds.index(Persist) < kinds.index(Disseminate)
    assert disseminated(effects) == [Signed(1, Event("a", "p", 1, 1), {"a": 1})]
    assert contents(effects, "p") == [Created("a", 1)]


def test_a_higher_one_asks_the_lower_one_to_sign() -> None:
    effects = sequencer("b").handle(1, Received("p", (create(1, "b"),)))
    assert disseminated(effects) == []
    assert contents(effects, "sequencer-a") == [Fill(0, "b", 1, {}, ("a",))]


def test_what_is_sent_again_is_not_numbered_again() -> None:
    machine = sequencer("a")
    machine.handle(1, Received("p", (create(1),)))
    again = machine.handle(2, Received("p", (create(1),)))
    reborn = machine.handle(3, Received("p", (Parcel(2, 1, create(1).content),)))
    assert not disseminated(again)
    assert not disseminated(reborn)
    assert contents(reborn, "p") == [Created("a", 1)]


def test_a_crash_changes_nothing_that_was_said() -> None:
    machine = sequencer("b")
    log = records(machine.handle(1, Received("p", (create(1, "b"), create(2, "b")))))
    reborn = TopicSequencer("b", sequencers=SEQUENCERS, subscriptions=BOTH)
    reborn.handle(5, Started(tuple(log)))
    repeated = contents(reborn.handle(10_000_000, TimerFired(("repeat",))), "sequencer-a")
    assert repeated == [
        Link(0, ("a",)),
        Fill(0, "b", 1, {}, ("a",)),
        Fill(0, "b", 2, {}, ("a",)),
    ]


def test_after_so_many_records_the_state_is_written_instead() -> None:
    machine = sequencer("a", log_count_max=2)
    effects = machine.handle(1, Received("p", (create(1), create(2), create(3))))
    kept = records(effects)
    assert [type(record) for record in kept] == [Condensed, Handled]
    reborn = sequencer("a", log_count_max=2)
    reborn.handle(2, Started(tuple(kept)))
    effects = reborn.handle(3, Received("p", (create(4),)))
    assert disseminated(effects) == [Signed(4, Event("a", "p", 4, 4), {"a": 4})]


def test_what_is_no_longer_kept_is_gone() -> None:
    machine = sequencer("a", kept_count_max=2)
    machine.handle(1, Received("p", tuple(create(n) for n in range(1, 8))))
    stream = ("sequencer-a", "a")
    answer = sent(machine.handle(2, Received("s", (Ask(stream, 1, 9),))), "s")
    assert answer[0] == Gone(stream, 5)
    assert [one.n for one in answer[1:] if isinstance(one, Signed)] == [5, 6, 7]


def test_answers_are_bounded() -> None:
    machine = sequencer("a", answer_count_max=3)
    machine.handle(1, Received("p", tuple(create(n) for n in range(1, 8))))
    answer = sent(machine.handle(2, Received("s", (Ask(("", "a"), 2, 7),))), "s")
    assert len(answer) == 3


def test_while_the_ranking_changes_requests_wait_up_to_a_bound() -> None:
    machine = sequencer("a", queue_count_max=2)
    machine.handle(1, Received("coordinator", (Parcel(0, 1, Prepare(1)),)))
    for n in (1, 2, 3):
        machine.handle(2, Received("p", (create(n),)))
    receipt = sent(machine.handle(9_000, TimerFired(("acknowledge",))), "p")
    assert receipt == [Receipt(1, 2)]  # the third was not taken: its client repeats it
    effects = machine.handle(10, Received("coordinator", (Parcel(0, 2, Abort(1)),)))
    assert [one.n for one in disseminated(effects) if isinstance(one, Signed)] == [1, 2]


def test_requests_that_are_under_way_are_bounded_and_what_others_ask_is_not() -> None:
    machine = sequencer("b", queue_count_max=2)  # nobody signs for it: its events stay under way
    for n in (1, 2, 3):
        machine.handle(2, Received("p", (create(n, "b"),)))
    assert sent(machine.handle(9_000, TimerFired(("acknowledge",))), "p") == [Receipt(1, 2)]
    signed = tuple(Parcel(0, n, Done(n, {"a": 1})) for n in (1, 2))
    effects = machine.handle(10_000, Received("sequencer-a", signed))
    assert [one.n for one in disseminated(effects) if isinstance(one, Signed)] == [1, 2]
    effects = machine.handle(20_000, Received("p", (create(3, "b"),)))  # now there is room
    assert [type(one) for one in contents(effects, "sequencer-a")] == [Fill]


def enter(machine: TopicSequencer, client: str) -> list[Message]:
    """A client subscribes; what it is answered."""
    given = Received(client, (Parcel(1, 1, Enter((1, 1), ("a",), "a")),))
    return contents(machine.handle(1, given), client)


def test_clients_are_bounded_and_who_left_first_makes_room() -> None:
    machine = sequencer("a", client_count_max=2)
    assert enter(machine, "u") and enter(machine, "v")
    assert enter(machine, "w") == []  # nobody has left: it is not heard, and repeats its request
    log = records(machine.handle(2, Received("u", (Parcel(1, 2, Leave((1, 2), ())),))))
    assert log
    assert enter(machine, "w")  # "u" is forgotten for it
    assert "u" not in machine._state.channels.inboxes
    again = machine.handle(3, Received("v", (Parcel(1, 2, Begin((1, 1))),)))
    assert contents(again, "v")  # who stays is known as before
    assert enter(machine, "x") == []


def test_a_publisher_that_leaves_its_topics_is_not_forgotten() -> None:
    machine = sequencer("a", client_count_max=1)
    machine.handle(1, Received("p", (create(1),)))
    machine.handle(2, Received("p", (Parcel(1, 2, Leave((1, 1), ())),)))
    assert enter(machine, "u") == []
    reborn = machine.handle(3, Received("p", (Parcel(2, 1, create(1).content),)))
    assert not disseminated(reborn)  # it is not numbered again


def test_without_leases_nobody_is_remembered_for_renewing_one() -> None:
    machine = sequencer("a")
    for n in range(10):
        machine.handle(1, Received(f"stranger {n}", (Renew(1),)))
    assert machine._state.tenants.heard == {}


def test_a_lost_tail_is_told_by_marks() -> None:
    machine = sequencer("a")
    effects = machine.handle(1, Received("p", (create(1),)))
    assert any(isinstance(one, SetTimer) and one.name == "mark" for one in effects)
    mark = disseminated(machine.handle(50_000, TimerFired(("mark",))))
    assert mark == [Mark(("sequencer-a", "a"), 1)]


@pytest.mark.parametrize(
    "bad",
    [
        Parcel(1, 1, Create(1, (Event("b", "p", 1, 1),))),
        Parcel(0, 1, Link(0, ("nowhere",))),
        Parcel(1, 1, Created("a", 1)),
    ],
)
def test_a_message_that_breaks_the_protocol_changes_nothing(bad: Parcel) -> None:
    machine = sequencer("a")
    before = machine.snapshot()
    with pytest.raises(PeerError):
        machine.handle(1, Received("p", (create(1), bad)))
    assert machine.snapshot() == before


# --- clients --------------------------------------------------------------------------------------


def client(**options: int) -> SequencingClient:
    found = SequencingClient(
        "s",
        sequencers=SEQUENCERS,
        topics=("a",),
        publishes=("a", "b"),
        options=SequencingOptions(**options),
    )
    found.handle(0, Started())
    return found


def test_with_one_order_over_whole_histories_a_publisher_waits_before_another_topic() -> None:
    machine = client(edge_on=1)
    effects = published(machine, 1, "a", "b")
    assert len(contents(effects, "sequencer-a")) == 1
    assert contents(effects, "sequencer-b") == []
    effects = machine.handle(2, Received("sequencer-a", (Parcel(1, 1, Created("a", 1)),)))
    assert len(contents(effects, "sequencer-b")) == 1


def test_publishing_is_refused_when_too_much_is_under_way() -> None:
    machine = client(outbox_count_max=2)
    published(machine, 1, "a", "b")
    with pytest.raises(UsageError, match="no room"):
        published(machine, 2, "a")


@pytest.mark.parametrize("request_", [Publish("c"), Subscribe(("c",))])
def test_a_topic_without_a_sequencer_is_refused(request_: Publish | Subscribe) -> None:
    machine = SequencingClient("s", sequencers=SEQUENCERS, publishes=("a", "c"))
    machine.handle(0, Started())
    with pytest.raises(UsageError, match="no sequencer") as refused:
        machine.handle(1, Command((request_,)))
    assert "a, b" in refused.value.hint


def test_who_publishes_to_every_topic_orders_those_that_have_a_sequencer() -> None:
    machine = SequencingClient("s", sequencers=SEQUENCERS, publishes=None)
    machine.handle(0, Started())
    effects = published(machine, 1, "c", "a")
    assert [effect.to for effect in effects if isinstance(effect, Send)] == ["sequencer-a"]
    assert machine.held_count == 2  # the event of a, and the parcel that it travels in


def test_events_that_a_life_published_are_handed_over_again_by_the_next() -> None:
    machine = client()
    log = records(published(machine, 1, "a", "b"))
    reborn = SequencingClient("s", sequencers=SEQUENCERS, publishes=("a", "b"))
    effects = reborn.handle(2, Started((*log,)))
    assert [type(one) for one in contents(effects, "sequencer-a")] == [Create]
    parcels = [one for one in sent(effects, "sequencer-a") if isinstance(one, Parcel)]
    assert parcels[0].life == 1  # the life of the first was not on this disk


def test_a_client_that_waits_for_nothing_tags_at_once() -> None:
    machine = client(tag=True, buffer_count_max=0)
    late, early = (Signed(n, Event("a", "p", n, n), {"a": n}) for n in (1, 2))
    found = []
    for one in (early, late):
        effects = machine.handle(1, Received("sequencer-a", (one,)))
        found += [d for e in effects if isinstance(e, Deliver) for d in e.deliveries]
    assert [(d.events[0].seq, d.in_order) for d in found] == [(2, True), (1, False)]


def test_the_time_to_live_ends_the_wait() -> None:
    machine = client(tag=True, time_to_live_us=1_000)
    early = Signed(2, Event("a", "p", 2, 2), {"a": 2})
    effects = machine.handle(10, Received("sequencer-a", (early,)))
    assert SetTimer("expire", 1_010) in effects
    effects = machine.handle(1_010, TimerFired(("expire",)))
    assert any(isinstance(effect, Deliver) for effect in effects)


def test_a_snapshot_takes_the_place_of_a_clients_log_and_loses_nothing_that_is_owed() -> None:
    machine = client()
    published(machine, 1, "a", "b")
    machine.handle(2, Received("sequencer-a", (Signed(1, Event("a", "q", 1, 1), {"a": 1}),)))
    log = records(machine.handle(3, Command((Compact(1),))))
    assert [type(record) for record in log] == [Saved]
    reborn = client()
    effects = reborn.handle(10, Started(tuple(log), 1))
    owed = [
        m.events[0].seq
        for to in SEQUENCERS.values()
        for m in contents(effects, to)
        if isinstance(m, Create)
    ]
    assert owed == [1, 2]
    double = reborn.handle(
        11, Received("sequencer-a", (Signed(1, Event("a", "q", 1, 1), {"a": 1}),))
    )
    assert not any(isinstance(effect, Deliver) for effect in double)
    late = machine.handle(4, Command((Compact(0),)))  # something is on its way to the application
    assert not any(isinstance(effect, Persist) for effect in late)


# --- the coordinator ------------------------------------------------------------------------------


def test_a_ranking_is_in_force_when_all_have_finished() -> None:
    machine = Coordinator(SEQUENCERS)
    machine.handle(0, Started())
    effects = machine.handle(1, Command((Rerank(("b", "a")),)))
    assert contents(effects, "sequencer-a") == [Prepare(1)]
    for number, topic in enumerate("ab"):
        answer = Parcel(0, 1, Prepared(1, topic, 5 + number))
        effects = machine.handle(2, Received(SEQUENCERS[topic], (answer,)))
    assert contents(effects, "sequencer-b") == [Commit(1, ("b", "a"), {"a": 5, "b": 6})]
    assert machine.order == ("b", "a")


def test_a_sequencer_that_does_not_answer_ends_the_attempt() -> None:
    machine = Coordinator(SEQUENCERS)
    machine.handle(0, Started())
    machine.handle(1, Command((Rerank(("b", "a")),)))
    with pytest.raises(UsageError, match="under way"):
        machine.handle(2, Command((Rerank(("b", "a")),)))
    effects = machine.handle(6_000_000, TimerFired(("give up",)))
    assert contents(effects, "sequencer-a") == [Abort(1)]
    late = Parcel(0, 1, Prepared(1, "a", 5))
    assert contents(machine.handle(7, Received("sequencer-a", (late,))), "sequencer-a") == []
    assert machine.order == ("a", "b")


def test_a_coordinator_that_comes_back_says_what_it_decided() -> None:
    machine = Coordinator(SEQUENCERS)
    log = records(machine.handle(0, Started()))
    log += records(machine.handle(1, Command((Rerank(("b", "a")),))))
    for topic in "ab":
        answer = Parcel(0, 1, Prepared(1, topic, 5))
        log += records(machine.handle(2, Received(SEQUENCERS[topic], (answer,))))
    reborn = Coordinator(SEQUENCERS)
    reborn.handle(3, Started(tuple(log)))
    assert reborn.order == ("b", "a")
    repeated = reborn.handle(10_000_000, TimerFired(("repeat",)))
    assert contents(repeated, "sequencer-a") == [
        Prepare(1),
        Commit(1, ("b", "a"), {"a": 5, "b": 5}),
    ]


def test_a_snapshot_takes_the_place_of_a_coordinators_log() -> None:
    machine = Coordinator(SEQUENCERS)
    machine.handle(0, Started())
    machine.handle(1, Command((Rerank(("b", "a")),)))
    log = records(machine.handle(2, Command((Compact(),))))
    assert [type(record) for record in log] == [Condensed]
    reborn = Coordinator(SEQUENCERS)
    reborn.handle(3, Started(tuple(log)))
    repeated = reborn.handle(10_000_000, TimerFired(("repeat",)))
    assert contents(repeated, "sequencer-a") == [Prepare(1)]
    with pytest.raises(UsageError, match="under way"):
        reborn.handle(4, Command((Rerank(("a", "b")),)))


def test_a_ranking_that_is_no_ranking_is_refused() -> None:
    machine = Coordinator(SEQUENCERS)
    machine.handle(0, Started())
    with pytest.raises(UsageError, match="every topic once"):
        machine.handle(1, Command((Rerank(("a",)),)))


# --- on the wire ----------------------------------------------------------------------------------


def test_messages_and_records_survive_their_bytes() -> None:
    codec = Codec((Parcel, Receipt, Signed, Mark, Ask, Gone))
    event = Event("a", "p", 1, 1, {"kind": 3})
    messages = (
        *(Parcel(1, n, Create(n, (event,))) for n in range(1, 9)),
        Parcel(0, 1, Fill(0, "b", 1, {}, ("a",))),
        *(Signed(n, event, {"a": n, "b": 0}) for n in range(1, 9)),
        Receipt(1, 4),
    )
    assert codec.decode(codec.encode(messages)) == messages
    record = Handled("p", 1, 1, Create(1, (event,)))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(record), type=Handled) == record
