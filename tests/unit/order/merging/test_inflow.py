"""The consumer's end of a stream: whom it asks, when it asks again, and how patient it is."""

from __future__ import annotations

from concordant.machine.holdback import Holdback
from concordant.model.event import Event
from concordant.order.merging.inflow import Inflow
from concordant.order.merging.messages import Batch, Ev, Pull, packed
from concordant.order.merging.options import MergingOptions

OPTIONS = MergingOptions(repeat_us=100, idle_us=1_000)


def inflow() -> Inflow:
    found = Inflow("A", "s q/1", 1, Holdback(10))
    asked = found.wish(0, 0, OPTIONS, overdue=False)
    assert asked is not None and asked.again
    return found


def look(found: Inflow, now: int, options: MergingOptions = OPTIONS) -> Pull | None:
    return found.wish(now, found.next, options, overdue=True)


def come(found: Inflow, now: int, count: int = 0) -> None:
    items = [Ev(found.due + n, n, Event("A", "p", n, n)) for n in range(count)]
    found.take_in(now, Batch("A", found.due, found.due + count, packed(items), many=(0,)))


def test_whoever_does_not_answer_in_time_is_left_for_the_next_replica() -> None:
    found = inflow()
    assert look(found, 100) is None and found.replica == 0
    asked = look(found, 101)
    assert asked is not None and asked.again and found.replica == 1


def test_whoever_takes_long_to_answer_is_given_longer() -> None:
    found = inflow()
    come(found, 90)
    found.take_all()
    found.wish(1_091, 0, OPTIONS, overdue=True)  # idle for long: asked again
    assert look(found, 1_091 + 4 * 90) is None, "answers take 90 here"
    assert look(found, 1_092 + 4 * 90) is not None and found.replica == 1


def test_patience_doubles_while_nobody_answers_and_has_a_bound() -> None:
    found, never_idle = inflow(), MergingOptions(repeat_us=100, idle_us=10**9)
    times, now = [], 0
    while len(times) < 8:
        now += 1
        if look(found, now, never_idle) is not None:
            times.append(now)
    waits = [b - a for a, b in zip([0, *times], times, strict=False)]
    assert waits == [101, 201, 401, 801, 1601, 1601, 1601, 1601]
    come(found, now + 1)
    for n in range(40):  # and by and by it is as short as it was
        found.wish(now + 10_000 * (n + 1), 0, OPTIONS, overdue=True)
        come(found, now + 10_000 * (n + 1) + 1)
    asked_at = now + 10_000 * 50
    found.wish(asked_at, 0, OPTIONS, overdue=True)
    assert look(found, asked_at + 101) is not None


def test_who_is_idle_but_hears_much_renews_its_lease_and_is_sent_nothing_twice() -> None:
    found = inflow()
    for now in range(10, 1_002, 10):
        come(found, now, 1)
        found.take_all()
    asked = look(found, 1_002)
    assert asked is not None and not asked.again
    asked = look(found, 2_100)
    assert asked is not None and asked.again, "a whole idle time without a word"
