"""Clients and hosts of ordered merging, one step at a time: bounds, joins, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from concordant.errors import PeerError, UsageError
from concordant.language import checked, parse
from concordant.machine.effects import Deliver, Effect, Persist, Send, SetTimer
from concordant.machine.inputs import Command, Received, Started, TimerFired
from concordant.machine.requests import Publish, Subscribe
from concordant.model.event import Event
from concordant.model.kind import Kind
from concordant.model.subscription import Subscription
from concordant.model.topic import Topic, schemas
from concordant.order.merging.client import MergedClient
from concordant.order.merging.filters import ALL, Filter
from concordant.order.merging.host import MergerHost
from concordant.order.merging.messages import (
    Accepted,
    Advance,
    Attach,
    Batch,
    Detach,
    Elsewhere,
    Ended,
    Ev,
    Offer,
    Pull,
    Queues,
    Start,
    packed,
    unpacked,
)
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.records import Correlate, Opened
from concordant.order.replication import ReplicationOptions

ONE = ReplicationOptions(replica_count=1)
OPTIONS = MergingOptions(replication=ONE)
KNOWN = schemas(Topic(name, {"x": Kind.INT}) for name in "ABC")


def subscription(text: str) -> Subscription:
    (good,), _ = checked(parse(text), KNOWN)
    return good


def client(
    *texts: str, options: MergingOptions = OPTIONS, hosts: Sequence[str] = ("m",)
) -> MergedClient:
    found = MergedClient(
        "s",
        hosts=hosts,
        publishes=("A",),
        subscriptions=[subscription(text) for text in texts],
        schemas=KNOWN,
        merging=options,
    )
    found.handle(0, Started())
    return found


def event(topic: str, n: int) -> Event:
    return Event(topic, "p", n, n)


def sent(effects: list[Effect], kind: type) -> list:
    return [m for e in effects if isinstance(e, Send) for m in e.messages if type(m) is kind]


def delivered(effects: list[Effect]) -> list[tuple[str, ...]]:
    found = [d for e in effects if isinstance(e, Deliver) for d in e.deliveries]
    return [tuple(event.id for event in one.events) for one in found]


def batch(name: str, *items: Any, first: int = 0, session: int = 1) -> Received:
    placed = [msgspec.structs.replace(item, n=n) for n, item in enumerate(items, first)]
    end = first + len(items)
    return Received("m", (Batch("", first, end, packed(placed), f"s {name}", session),))


# --- clients --------------------------------------------------------------------------------------


def test_what_is_fed_is_durable_before_it_is_delivered() -> None:
    found = client("q: A")
    effects = found.handle(1, batch("q/1", Start(0, 0, "", 1), Ev(0, 1, event("A", 1))))
    kinds = [type(one) for one in effects]
    assert delivered(effects) == [("p:1",)]
    assert max(i for i, one in enumerate(kinds) if one is Persist) < kinds.index(Deliver)


def test_a_batch_of_something_else_is_refused_and_changes_nothing() -> None:
    found = client("q: A")
    before = found.snapshot()
    with pytest.raises(PeerError, match="no items"):
        found.handle(1, Received("m", (Batch("", 0, 1, b"\xc1", "s q/1", 1),)))
    assert found.snapshot() == before


def test_items_are_taken_in_the_order_of_their_index() -> None:
    found = client("q: A")
    assert delivered(found.handle(1, batch("q/1", Ev(0, 2, event("A", 2)), first=2))) == []
    effects = found.handle(2, batch("q/1", Start(0, 0, "", 1), Ev(0, 1, event("A", 1))))
    assert delivered(effects) == [("p:1",), ("p:2",)]


def test_a_batch_for_many_is_taken_by_those_whom_it_names_by_where_they_began() -> None:
    found = client("q: A")
    many = Batch("A", 8, 9, packed([Ev(8, 2, event("A", 2))]), many=(3, 7))
    assert delivered(found.handle(1, Received("m", (many,)))) == []  # it does not know yet
    items = [Start(7, 0, "", 1)]
    first = Batch("A", 7, 8, packed(items), "s q/1", 1, base=7, begin=7)
    found.handle(2, Received("m", (first,)))
    others = Batch("A", 8, 9, packed([Ev(8, 2, event("A", 2))]), many=(3,))
    assert delivered(found.handle(3, Received("m", (others,)))) == []
    assert delivered(found.handle(4, Received("m", (many,)))) == [("p:2",)]


@pytest.mark.parametrize(
    ("first", "end", "numbers", "why"),
    [
        (0, 2, (1, 0), "out of order"),
        (0, 1, (0, 1), "lie elsewhere"),
        (2, 1, (), "ends before it begins"),
    ],
)
def test_a_batch_whose_items_are_not_where_it_says_is_refused(
    first: int, end: int, numbers: tuple[int, ...], why: str
) -> None:
    found = client("q: A")
    before = found.snapshot()
    items = [Ev(n, n, event("A", n)) for n in numbers]
    with pytest.raises(PeerError, match=why):
        found.handle(1, Received("m", (Batch("A", first, end, packed(items), "s q/1", 1),)))
    assert found.snapshot() == before


def test_an_event_waits_for_the_frontier_of_the_other_stream() -> None:
    found = client("q: A", "r: B")
    found.handle(1, batch("q/1", Start(0, 0, "", 1)))
    found.handle(1, batch("r/1", Start(0, 0, "", 1), session=2))
    effects = found.handle(2, batch("q/1", Ev(0, 5, event("A", 1)), first=1))
    assert delivered(effects) == []
    effects = found.handle(3, batch("r/1", Ev(0, 3, event("B", 2)), first=1, session=2))
    assert delivered(effects) == [("p:2",)]
    effects = found.handle(4, batch("r/1", Ev(0, 9, event("B", 3)), first=2, session=2))
    assert delivered(effects) == [("p:1",)]


def test_what_one_stream_brings_lets_another_go_on_and_ask_for_more() -> None:
    found = client("q: A", "r: B", options=msgspec.structs.replace(OPTIONS, window_count=4))
    found.handle(1, batch("q/1", Start(0, 0, "", 1)))
    found.handle(1, batch("r/1", Start(0, 0, "", 1), session=2))
    many = [Ev(0, ts, event("A", ts)) for ts in range(5, 9)]
    effects = found.handle(2, batch("q/1", *many, first=1))
    assert not sent(effects, Pull)  # they wait for the other stream, and the window is theirs
    effects = found.handle(3, batch("r/1", Ev(0, 9, event("B", 9)), first=1, session=2))
    assert [(one.merger, one.start, one.end) for one in sent(effects, Pull)] == [("A", 5, 9)]


def test_where_answers_take_long_it_is_looked_more_rarely() -> None:
    found = client("q: A")
    took_us = 3 * OPTIONS.tick_us
    found.handle(took_us, batch("q/1", Start(0, 0, "", 1)))
    found.handle(took_us, Command((Publish("A", {"x": 1}),)))  # so there is something to look after
    effects = found.handle(took_us, TimerFired(("tick",)))
    due = [one.at for one in effects if isinstance(one, SetTimer) and one.name == "tick"]
    assert due == [2 * took_us]


def two_streams_one_of_them_waiting(heard_at: int, now: int) -> tuple[MergedClient, list[Effect]]:
    found = client("q: A", "r: B")
    found.handle(1, batch("q/1", Start(0, 0, "", 1)))
    found.handle(heard_at, batch("r/1", Start(0, 0, "", 1), session=2))
    return found, found.handle(now, batch("q/1", Ev(0, 5, event("A", 1)), first=1))


def test_a_mark_of_a_stream_that_is_silent_is_asked_for_a_moment_later() -> None:
    silent = 2 + OPTIONS.tick_us
    found, effects = two_streams_one_of_them_waiting(1, silent)
    due = [one.at for one in effects if isinstance(one, SetTimer) and one.name == "mark"]
    assert due == [silent + OPTIONS.mark_us] and not sent(effects, Advance)
    effects = found.handle(due[0], TimerFired(("mark",)))
    assert sent(effects, Advance) == [Advance("B", "s r/1", 2, 5, 1)]


def test_a_mark_that_an_event_has_made_needless_is_not_asked_for() -> None:
    found, _ = two_streams_one_of_them_waiting(1, 2 + OPTIONS.tick_us)
    found.handle(3 + OPTIONS.tick_us, batch("r/1", Ev(0, 9, event("B", 3)), first=1, session=2))
    assert not sent(found.handle(2 * OPTIONS.tick_us, TimerFired(("mark",))), Advance)


def test_a_lively_stream_is_not_asked_for_a_mark_before_it_falls_silent() -> None:
    found, effects = two_streams_one_of_them_waiting(1, 2)
    assert not [one for one in effects if isinstance(one, SetTimer) and one.name == "mark"]
    assert not sent(found.handle(1 + OPTIONS.tick_us, TimerFired(("tick",))), Advance)
    asked = [Advance("B", "s r/1", 2, 5, 1)]
    assert sent(found.handle(2 + OPTIONS.tick_us, TimerFired(("tick",))), Advance) == asked


def test_a_mark_that_does_not_come_is_asked_for_again_when_patience_ends() -> None:
    found, _ = two_streams_one_of_them_waiting(1, 2)
    first = 2 + OPTIONS.tick_us
    assert sent(found.handle(first, TimerFired(("tick",))), Advance)
    last = first + OPTIONS.repeat_us
    for now in range(first + OPTIONS.tick_us, last, OPTIONS.tick_us):
        found.handle(now, TimerFired(("tick",)))
    assert not sent(found.handle(last, TimerFired(("tick",))), Advance)
    assert sent(found.handle(last + 1, TimerFired(("tick",))), Advance)


def test_who_looks_late_is_busy_itself_and_waits_longer_for_answers() -> None:
    found = client("q: A")
    late_us = 3 * OPTIONS.repeat_us
    effects = found.handle(OPTIONS.tick_us + late_us, TimerFired(("tick",)))
    assert not sent(effects, Pull)  # what was answered meanwhile may not be read yet
    (stream,) = found._state.streams.values()
    assert stream.inflow.patience_us(OPTIONS) > late_us


def test_the_replica_that_did_not_answer_is_told_that_another_is_asked() -> None:
    options = msgspec.structs.replace(OPTIONS, replication=ReplicationOptions())
    found = client("q: A", hosts=("m", "n", "o"), options=options)
    asked: list[tuple[str, bool]] = []
    for now in range(OPTIONS.tick_us, 20 * OPTIONS.repeat_us, OPTIONS.tick_us):
        effects = found.handle(now, TimerFired(("tick",)))
        sends = [one for one in effects if isinstance(one, Send)]
        asked += [(e.to, m.leaves) for e in sends for m in e.messages if isinstance(m, Pull)]
        if asked:
            break
    (one, leaves), (other, left) = asked
    assert one != other and not leaves and left


def test_a_subscription_at_run_time_begins_after_what_was_delivered() -> None:
    found = client("q: A")
    found.handle(1, batch("q/1", Start(0, 0, "", 1), Ev(0, 70, event("A", 1))))
    effects = found.handle(2, Command((Correlate(subscription("r: B")),)))
    (attach,) = sent(effects, Attach)
    assert attach.after == 70


def test_a_joiner_delivers_nothing_before_it_is_live_and_ignores_queues_of_an_old_cut() -> None:
    found = client("q: A")
    effects = found.handle(1, batch("q/1", Start(0, 0, "t q/1", 3), Ev(0, 1, event("A", 1))))
    assert delivered(effects) == []
    donor = client("q: A")
    donor.handle(1, batch("q/1", Start(0, 0, "", 1)))
    old = Queues("s q/1", 1, 2, donor._matchers["q/1"].save())
    assert found.handle(2, Received("t", (old,))) == []


def test_a_session_that_was_given_up_begins_again_with_a_greater_number() -> None:
    found = client("q: A")
    found.handle(1, batch("q/1", Start(0, 0, "", 1)))
    effects = found.handle(2, Received("m", (Ended("A", "s q/1", 1),)))
    (attach,) = sent(effects, Attach)
    assert attach.session == 2


def test_after_a_crash_the_session_goes_on_where_it_was() -> None:
    found = client("q: A and B")
    first = batch("q/1", Start(0, 0, "", 1), Ev(0, 1, event("A", 1)))
    records = [r for e in found.handle(1, first) if isinstance(e, Persist) for r in e.records]
    whole = MergedClient("s", hosts=("m",), schemas=KNOWN, merging=OPTIONS)
    opened = client("q: A and B")._state.streams["q/1"].wanted
    effects = whole.handle(2, Started((Opened(opened, 1), *records)))
    (pull,) = sent(effects, Pull)
    assert (pull.session, pull.start) == (1, 2)
    effects = whole.handle(3, batch("q/1", Ev(0, 2, event("B", 2)), first=2))
    assert delivered(effects) == [("p:1", "p:2")]


def test_publishing_is_refused_when_the_way_to_the_roots_is_full() -> None:
    options = MergingOptions(replication=ONE, outbox_count_max=2)
    found = client(options=options)
    found.handle(1, Command((Publish("A"), Publish("A"))))
    with pytest.raises(UsageError, match="no room"):
        found.handle(2, Command((Publish("A"),)))
    found.handle(3, Received("m", (Accepted("A", 1),)))
    found.handle(4, Command((Publish("A"),)))


def test_a_new_leader_is_given_piece_by_piece_what_another_was_sent() -> None:
    options = MergingOptions(
        replication=ReplicationOptions(replica_count=3), batch_count_max=2, repeat_us=100
    )
    found = MergedClient("p", hosts=("m1", "m2", "m3"), publishes=("A",), merging=options)
    found.handle(0, Started())

    def numbers(effects: list[Effect]) -> list[int]:
        return [one.n + i for one in sent(effects, Offer) for i in range(len(one.events))]

    assert numbers(found.handle(1, Command((Publish("A"),) * 5))) == [1, 2, 3, 4, 5]
    for now in (50, 90):  # publishing on does not hide that nobody answers
        assert numbers(found.handle(now, Command((Publish("A"),)))) != []
    assert numbers(found.handle(102, TimerFired(("tick",)))) == [1, 2]
    assert numbers(found.handle(103, Command((Publish("A"),)))) == []
    assert numbers(found.handle(104, Received("m2", (Accepted("A", 1),)))) == [3]
    assert numbers(found.handle(105, Received("m2", (Accepted("A", 3),)))) == [4, 5]
    assert numbers(found.handle(106, Received("m2", (Accepted("A", 6),)))) == [7, 8]
    assert numbers(found.handle(107, Command((Publish("A"),)))) == [9]


def test_two_that_name_each_other_as_leader_are_not_followed_for_ever() -> None:
    options = MergingOptions(replication=ReplicationOptions(replica_count=3))
    found = MergedClient("p", hosts=("m1", "m2", "m3"), publishes=("A",), merging=options)
    found.handle(0, Started())
    found.handle(1, Command((Publish("A"),)))
    first = found.handle(2, Received("m1", (Elsewhere("A", "m2"),)))
    again = found.handle(3, Received("m2", (Elsewhere("A", "m3"),)))
    assert sent(first, Offer) or sent(again, Offer)
    assert not sent(again, Offer) or not sent(first, Offer)


def test_a_name_is_subscribed_once() -> None:
    found = client("q: A")
    before = found.snapshot()
    with pytest.raises(UsageError, match="already"):
        found.handle(1, Command((Publish("A"), Correlate(subscription("q: B")))))
    assert found.snapshot() == before


def test_topics_that_a_conjunction_reads_are_not_delivered_by_themselves() -> None:
    found = client("q: A and B")
    assert found.handle(1, Command((Subscribe(("A", "B")),))) == []


# --- hosts ----------------------------------------------------------------------------------------


def host(**others: int) -> MergerHost:
    options = MergingOptions(replication=ONE, **others)
    found = MergerHost("m", hosts=("m",), options=options)
    found.handle(0, Started())
    return found


def worked(found: MergerHost, now: int, *messages: object, source: str = "p") -> list[Effect]:
    found.handle(now, Received(source, messages))  # type: ignore[arg-type]
    return found.handle(now, TimerFired(("work",)))


def offers(*numbers: int) -> list[Offer]:
    return [Offer("A", n, (event("A", n),)) for n in numbers]


def attached(found: MergerHost, name: str = "s q") -> None:
    worked(found, 1, Attach("A", name, 1, "q", Filter({"A": ALL})), source="s")


def test_a_batch_has_no_more_items_than_it_may_and_no_more_than_were_asked_for() -> None:
    found = host(batch_count_max=2)
    attached(found)
    worked(found, 2, *offers(1, 2, 3, 4, 5))
    effects = worked(found, 3, Pull("A", "s q", 1, 0, 0, 5), source="s")
    assert [len(unpacked(one.items)) for one in sent(effects, Batch)] == [2, 2, 1]


def test_who_is_too_far_behind_holds_up_publishers_until_it_has_done() -> None:
    found = host(lag_count_max=2)
    attached(found)
    worked(found, 2, *offers(1, 2, 3))
    assert sent(worked(found, 3, *offers(4)), Accepted) == [Accepted("A", 3)]
    effects = worked(found, 4, Pull("A", "s q", 1, 4, 4, 9), source="s")
    assert sent(effects, Accepted) == [Accepted("A", 4)]


def test_a_silent_subscriber_loses_its_session() -> None:
    found = host(lease_us=1_000)
    attached(found)
    for now in (500, 3_000):
        found.handle(now, TimerFired(("tick",)))
    found.handle(3_000, TimerFired(("work",)))
    effects = worked(found, 3_001, Pull("A", "s q", 1, 0, 0, 9), source="s")
    assert sent(effects, Ended) == [Ended("A", "s q", 1)]


def test_what_ended_is_said_again_to_who_asks_again() -> None:
    found = host()
    attached(found)
    worked(found, 2, Detach("A", "s q", 1), source="s")
    again = found.handle(3, Received("s", (Detach("A", "s q", 1),)))
    assert sent(again, Ended) == [Ended("A", "s q", 1)]


def test_a_host_takes_part_in_so_many_mergers_and_no_more() -> None:
    found = host(merger_count_max=1)
    attached(found)
    before = found.snapshot()
    with pytest.raises(PeerError, match="has its 1 mergers"):
        found.handle(2, Received("s", (Pull("B", "s r", 1, 0, 0, 9),)))
    assert found.snapshot() == before


def test_events_of_another_topic_are_not_for_this_root() -> None:
    found = host()
    attached(found)
    before = found.snapshot()
    with pytest.raises(PeerError, match="another topic's events"):
        found.handle(2, Received("p", (Offer("A", 1, (event("A", 1), event("B", 2))),)))
    assert found.snapshot() == before


def test_a_merger_of_other_hosts_is_refused() -> None:
    options = MergingOptions(replication=ONE)
    hosts = tuple(f"m{n}" for n in range(1, 5))
    others = [MergerHost(name, hosts=hosts, options=options) for name in hosts]
    refused = 0
    for one in others:
        try:
            one.handle(0, Received("s", (Pull("A", "s q", 1, 0, 0, 9),)))
        except PeerError:
            refused += 1
    assert refused == 3


def test_committed_entries_become_one_state() -> None:
    options = MergingOptions(replication=ReplicationOptions(replica_count=1, entry_count_max=0))
    found = MergerHost("m", hosts=("m",), options=options)
    found.handle(0, Started())
    effects = worked(found, 2, *offers(1, 2, 3, 4, 5))
    (whole,) = [one for one in effects if isinstance(one, Persist)]
    assert whole.replaces
    again = MergerHost("m", hosts=("m",), options=options)
    again.handle(9, Started(whole.records))
    for now in (1_000_000, 1_000_001):
        again.handle(now, TimerFired(("tick",)))
        again.handle(now, TimerFired(("work",)))
    assert sent(worked(again, 1_000_002, *offers(6)), Accepted) == [Accepted("A", 6)]


def test_a_host_works_a_moment_after_messages_came() -> None:
    found = host(gather_us=700)
    effects = found.handle(5, Received("p", tuple(offers(1))))
    assert SetTimer("work", 705, 0) in effects
