"""Who is served together by a replica of a merger, who alone, and how much."""

from __future__ import annotations

from concordant.language import parse
from concordant.machine.effects import Effect, Send, SendAll
from concordant.machine.inputs import Received, Started, TimerFired
from concordant.model.event import Event
from concordant.order.merging.filters import ALL, Filter, filter_of
from concordant.order.merging.host import MergerHost
from concordant.order.merging.messages import (
    Advance,
    Attach,
    Batch,
    Complete,
    Detach,
    Ev,
    Offer,
    Past,
    Pull,
    unpacked,
)
from concordant.order.merging.options import MergingOptions
from concordant.order.replication import ReplicationOptions

WHOLE = Filter({"A": ALL})


def host(**others: int) -> MergerHost:
    options = MergingOptions(replication=ReplicationOptions(replica_count=1), **others)
    found = MergerHost("m", hosts=("m",), options=options)
    found.handle(0, Started())
    return found


def worked(found: MergerHost, source: str, *messages: object) -> list[Effect]:
    found.handle(1, Received(source, messages))  # type: ignore[arg-type]
    return found.handle(1, TimerFired(("work",)))


def joined(found: MergerHost, name: str, *, wanted: Filter = WHOLE, text: str = "") -> list[Effect]:
    """A subscriber whose session is live, and that has read everything."""
    consumer = f"{name} q"
    worked(found, name, Attach("A", consumer, 1, text or name, wanted))
    session = found._state.parts["A"].core.sessions[consumer]
    worked(found, name, Complete("A", consumer, 1, session.cut))
    return worked(found, name, Pull("A", consumer, 1, 0, 0, 100))


def published(found: MergerHost, first: int, *kinds: int) -> list[Effect]:
    events = [Event("A", "p", n, n, {"kind": kind}) for n, kind in enumerate(kinds, first)]
    return worked(found, "p", Offer("A", first, tuple(events)))


def shared(effects: list[Effect]) -> list[tuple[tuple[str, ...], Batch]]:
    return [
        (e.to, m)
        for e in effects
        if isinstance(e, SendAll)
        for m in e.messages
        if isinstance(m, Batch)
    ]


def single(effects: list[Effect]) -> list[tuple[str, Batch]]:
    sends = [e for e in effects if isinstance(e, Send)]
    return [(e.to, m) for e in sends for m in e.messages if isinstance(m, Batch)]


def caught_up(*names: str, **others: int) -> MergerHost:
    """Subscribers that are equally far."""
    found = host(**others)
    for name in names:
        joined(found, name)
    published(found, 1, 0)
    return found


def test_those_who_are_equally_far_get_one_batch() -> None:
    found = caught_up("s", "t", "u")
    ((to, batch),) = shared(published(found, 2, 0, 0))
    assert to == ("s", "t", "u")
    assert [item.event.seq for item in unpacked(batch.items) if isinstance(item, Ev)] == [2, 3]
    core = found._state.parts["A"].core
    assert batch.many == tuple(core.sessions[f"{name} q"].begin for name in "stu")


def test_who_has_another_filter_gets_its_own() -> None:
    found = caught_up("s", "t")
    joined(found, "u", wanted=filter_of(parse("q: A.kind = 7")[0]))
    published(found, 2, 0)
    effects = published(found, 3, 7, 8)
    assert [to for to, _ in shared(effects)] == [("s", "t")]
    (batch,) = [batch for to, batch in single(effects) if to == "u"]
    assert [item.event.seq for item in unpacked(batch.items) if isinstance(item, Ev)] == [3]


def test_what_is_for_one_alone_is_sent_to_it_alone() -> None:
    found = caught_up("s", "t")
    joined(found, "u", text="s")  # with the queues of s, which is told to give them
    core = found._state.parts["A"].core
    assert core.sessions["u q"].donor == "s q"
    published(found, 2, 0)
    effects = published(found, 3, 0)
    assert [sorted(to) for to, _ in shared(effects)] == [["s", "t", "u"]]  # and together again


def test_nobody_is_sent_more_than_it_has_room_for() -> None:
    found = host()
    joined(found, "s")
    worked(found, "s", Pull("A", "s q", 1, 0, 2, 4, True))
    published(found, 1, 0, 0, 0, 0)
    asked = found._state.parts["A"].readers.asked["s q"]
    assert (asked.sent, asked.room) == (4, 0)


def test_what_is_not_for_a_consumer_takes_none_of_its_room() -> None:
    found = host()
    joined(found, "s", wanted=filter_of(parse("q: A.kind = 7")[0]))
    worked(found, "s", Pull("A", "s q", 1, 0, 2, 4, True))
    published(found, 1, 1, 2, 3, 4)
    effects = published(found, 5, 7)
    ((_, batch),) = single(effects)
    assert [item.event.seq for item in unpacked(batch.items) if isinstance(item, Ev)] == [5]
    readers = found._state.parts["A"].readers
    (group,) = readers.groups.values()
    assert readers.asked["s q"].room - group.given == 1


def test_whoever_runs_out_of_room_leaves_its_group_and_joins_again_when_it_has_some() -> None:
    found = caught_up("s", "t")
    published(found, 2, 0)
    end = found._state.parts["A"].core.end
    worked(found, "t", Pull("A", "t q", 1, 0, end, end + 2, True))
    published(found, 3, 0)
    published(found, 4, 0, 0)
    effects = published(found, 6, 0)
    assert [to for to, _ in single(effects)] == ["s"]
    worked(found, "t", Pull("A", "t q", 1, 0, end + 2, end + 50))
    ((to, batch),) = shared(published(found, 7, 0))
    assert sorted(to) == ["s", "t"] and batch.first == end + 4


def test_who_turns_to_another_replica_is_sent_nothing_more() -> None:
    found = caught_up("s", "t")
    assert not worked(found, "s", Pull("A", "s q", 1, 0, 9, 9, leaves=True))
    assert [to for to, _ in single(published(found, 2, 0))] == ["t"]
    assert [to for to, _ in single(worked(found, "s", Pull("A", "s q", 1, 0, 0, 100)))] == ["s"]


def test_who_has_gone_is_in_no_group() -> None:
    found = caught_up("s", "t")
    worked(found, "s", Detach("A", "s q", 1))
    assert [to for to, _ in single(published(found, 2, 0))] == ["t"]


def test_who_is_given_nothing_hears_now_and_then_how_far_it_is() -> None:
    found = host(window_count=8)
    joined(found, "s", wanted=filter_of(parse("q: A.kind = 7")[0]))
    assert not single(published(found, 1, 0, 0))
    ((_, batch),) = single(published(found, 3, 0))
    assert unpacked(batch.items) == () and batch.end == found._state.parts["A"].core.end


def test_a_mark_wakes_those_who_wait_for_marks_and_nobody_else() -> None:
    found = caught_up("s", "t")
    effects = worked(found, "s", Advance("A", "s q", 1, 10**18, 99))
    assert [to for to, _ in single(effects)] == ["s"]
    ((_, batch),) = single(effects)
    assert [type(item) for item in unpacked(batch.items)] == [Past]
    again = worked(found, "t", Advance("A", "t q", 1, 10**18, 0))  # the same mark is there for it
    assert [to for to, _ in single(again)] == ["t"]
    marks = [item for item in found._state.parts["A"].core.items if isinstance(item, Past)]
    assert len(marks) == 1
