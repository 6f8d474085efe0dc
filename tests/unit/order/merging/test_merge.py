"""The order among the streams of one subscriber, against a plain sort of all events."""

from __future__ import annotations

from random import Random

import pytest

from concordant.machine.holdback import Holdback
from concordant.model.event import Event
from concordant.order.merging.inflow import Inflow
from concordant.order.merging.merge import due, limit, order
from concordant.order.merging.messages import Ev
from concordant.order.merging.stamps import ALL, place_of
from concordant.order.merging.stream import Stream, Wanted


def stream(name: str, times: list[int], frontier: int, *, stamped: bool = False) -> Stream:
    inflow = Inflow(name, f"s {name}", 1, Holdback(10))
    found = Stream(
        Wanted(None, topic=name), inflow, name, (name, name), 0, (frontier, ALL), stamped=stamped
    )
    found.stage = "live"
    found.waiting = [Ev(n, ts, Event(name, "p", n, ts)) for n, ts in enumerate(times)]
    return found


def places(runs: list[tuple[Stream, tuple[Ev, ...]]]) -> list[tuple[int, str]]:
    return [(item.ts, one.name) for one, items in runs for item in items]


def test_events_go_by_runs_up_to_the_next_one_of_another_stream() -> None:
    a, b = stream("A", [1, 2, 3, 7, 8], 8), stream("B", [4, 5, 9], 9)
    runs = due([a, b])
    assert [(one.name, [item.ts for item in items]) for one, items in runs] == [
        ("A", [1, 2, 3]),
        ("B", [4, 5]),
        ("A", [7, 8]),
    ]
    assert [item.ts for item in b.waiting] == [9], "A may still bring an event of time 9"


def test_of_equal_times_the_conjunction_decides() -> None:
    a, b = stream("A", [5], 5), stream("B", [5], 5)
    assert places(due([b, a])) == [(5, "A"), (5, "B")]


def test_nothing_passes_an_event_of_a_stream_that_is_not_live_yet() -> None:
    a, b = stream("A", [1, 6], 6), stream("B", [4], 9)
    b.stage = "waiting"
    assert places(due([a, b])) == [(1, "A")]
    assert [item.ts for item in b.waiting] == [4]


@pytest.mark.parametrize("stamped", [False, True])
def test_what_is_due_is_what_a_sort_gives(stamped: bool) -> None:
    fed = alternating = 0
    for seed in range(300):
        rng = Random(seed)
        streams = []
        for name in "ABCD"[: rng.randint(2, 4)]:
            times, ts = [], 0
            for _ in range(rng.randint(0, 12)):
                ts += 1 if rng.random() < 0.7 else rng.randint(1, 9)
                times.append(ts)
            streams.append(stream(name, times, ts + rng.randint(0, 5), stamped=stamped))
            if rng.random() < 0.1:
                streams[-1].stage = "waiting"
        held = [order(one, one.head) for one in streams if one.head and one.stage != "live"]
        expected = sorted(
            (order(one, item), one.name)
            for one in streams
            for item in one.waiting
            if one.stage == "live"
            and place_of(item) <= limit(one, streams)
            and all(order(one, item) <= other for other in held)
        )
        before = {one.name: len(one.waiting) for one in streams}
        runs = due(streams)
        assert places(runs) == [(place[0], name) for place, name in expected]
        taken = {one.name: sum(len(i) for o, i in runs if o is one) for one in streams}
        assert before == {one.name: len(one.waiting) + taken[one.name] for one in streams}
        fed += len(expected)
        alternating += len(runs) > 4
    assert fed > 1_000 and alternating > 30
