"""Mergers that take events by the stamps of their roots: order, marks, and who waits for them."""

from __future__ import annotations

import msgspec

from concordant.machine.holdback import Holdback
from concordant.model.event import Event
from concordant.order.merging.core import Core
from concordant.order.merging.filters import ALL, Filter
from concordant.order.merging.inflow import Inflow
from concordant.order.merging.messages import (
    Advance,
    Attach,
    Batch,
    Ev,
    Item,
    Past,
    Put,
    Start,
    Take,
    Widened,
    packed,
)
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.part import Part
from concordant.order.merging.stamps import passed
from concordant.order.replication import Replica, ReplicationOptions

OPTIONS = MergingOptions(stamped=True, replication=ReplicationOptions(replica_count=1))
BOTH = Filter({"A": ALL, "B": ALL})


def ev(ts: int, topic: str) -> Ev:
    return Ev(0, ts, Event(topic, f"p{topic}", ts, ts))


def past(ts: int) -> Past:
    return Past(0, ts)


def merger() -> Part:
    """A leader of A+B that lives, with both filters in force."""
    part = Part(
        "A+B", Replica("A+B", 0, OPTIONS.replication), Core(("A", "B"), stamped=True), led=0
    )
    part.replica.begin(0)
    part.core.apply(Attach("A+B", "s q", 1, "q", BOTH))
    for side in (0, 1):
        part.core.apply(Take(1, side, 0, 1, (Widened(0, 0, 1),), 0))
    part.inputs = [
        Inflow(name, f"A+B {side}", 1, Holdback(100), next=1, due=1)
        for name, side in (("A", "left"), ("B", "right"))
    ]
    return part


def given(part: Part, side: int, *items: Item) -> list[Item]:
    """Items come from a parent; what is taken in the order in which it is logged."""
    one = part.inputs[side]
    placed = [msgspec.structs.replace(item, n=n) for n, item in enumerate(items, one.due)]
    end = one.due + len(items)
    one.take_in(0, Batch(one.merger, one.due, end, packed(placed), one.consumer, 1))
    takes = list(part._takes(0))
    for take in takes:
        part.core.apply(take)
    return [msgspec.structs.replace(item, n=0) for take in takes for item in take.items]


def seen(part: Part, consumer: str) -> list[Item]:
    """The items for a consumer, numbered alike."""
    core, session = part.core, part.core.sessions[consumer]
    found = [one for one in core.between(session.begin, core.end) if session.sees(one)]
    return [msgspec.structs.replace(one, n=0) for one in found]


def test_an_event_waits_until_the_other_topic_has_passed_its_time() -> None:
    part = merger()
    assert given(part, 0, ev(5, "A")) == []
    assert given(part, 1, ev(3, "B")) == [ev(3, "B")]
    assert given(part, 1, past(4)) == [past(4)]
    assert given(part, 1, ev(9, "B")) == [ev(5, "A")]
    assert [one.ts for one in seen(part, "s q") if isinstance(one, Ev)] == [3, 5]


def test_of_two_with_one_time_the_topic_decides() -> None:
    part = merger()
    assert given(part, 1, ev(7, "B")) == []
    assert given(part, 0, ev(7, "A")) == [ev(7, "A"), ev(7, "B")]


def test_a_mark_is_asked_of_the_parent_that_others_wait_for() -> None:
    part = merger()
    given(part, 0, ev(5, "A"), ev(8, "A"))
    assert list(part.marks(0, OPTIONS, overdue=False)) == [Advance("B", "A+B right", 1, 8, 1)]
    assert list(part.marks(1, OPTIONS, overdue=False)) == []  # once, until it is overdue
    later = OPTIONS.repeat_us + 1
    assert list(part.marks(later, OPTIONS, overdue=True)) == [Advance("B", "A+B right", 1, 8, 1)]


def test_a_mark_behind_an_event_does_not_hide_the_time_that_is_waited_for() -> None:
    part = merger()
    assert given(part, 0, ev(8, "A"), past(7)) == []
    assert [one.ts for one in part.marks(0, OPTIONS, overdue=False)] == [8]
    for one in part.inputs:  # the mistake: only the last item at hand is looked at
        one.ready, one.marked = one.ready[-1:], 0
    assert [one.ts for one in part.marks(0, OPTIONS, overdue=False)] != [8]


def test_a_wish_for_progress_is_fulfilled_when_both_parents_have_passed_it() -> None:
    part = merger()
    part.core.apply(Advance("A+B", "s q", 1, 6))
    wanted = {one.merger for one in part.marks(0, OPTIONS, overdue=False)}
    assert wanted == {"A", "B"}
    given(part, 0, past(6))
    assert not any(isinstance(one, Past) for one in seen(part, "s q"))
    given(part, 1, past(7))
    assert seen(part, "s q")[-1] == past(6)


def test_who_subscribes_at_run_time_begins_when_its_past_is_passed() -> None:
    part = merger()
    part.core.apply(Attach("A+B", "t r", 1, "r", BOTH, 10))
    assert "t r" not in part.core.sessions and part.core.wished == 10
    given(part, 0, past(10))
    given(part, 1, past(11))
    assert seen(part, "t r") == [Start(0, 10, "", 2)]


def test_behind_an_event_of_a_root_its_time_is_passed_and_behind_that_of_a_merger_it_is_not() -> (
    None
):
    root, mixed = Core(("A", "B"), stamped=True), Core(("A", "B", "C"), stamped=True)
    assert not root.mixed(0) and mixed.mixed(0) and not mixed.mixed(1)
    assert passed((5, "A")) == 4


def test_a_root_gives_times_as_ever() -> None:
    core = Core(("A",), stamped=True)
    core.apply(Put("p", 1, (Event("A", "p", 1, 1),), 50))
    assert core.ts == 50
