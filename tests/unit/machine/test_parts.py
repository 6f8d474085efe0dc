"""Holdback, hybrid clock, views and the failure detector on their own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from concordant.machine.clock import HybridClock
from concordant.machine.detector import Detector, DetectorOptions, Heartbeat, Suspected, Trusted
from concordant.machine.effects import Send
from concordant.machine.holdback import Holdback
from concordant.machine.inputs import Command, Received, Started, TimerFired
from concordant.machine.requests import Install
from concordant.machine.view import View

OPTIONS = DetectorOptions(beat_us=10, suspect_us=100)


@given(st.lists(st.integers(0, 50)), st.integers(1, 8))
def test_a_holdback_keeps_the_nearest_items_and_hands_them_out_in_order(
    keys: list[int], bound: int
) -> None:
    held = Holdback[int, int](count_max=bound)
    for key in keys:
        held.put(key, key)
        assert len(held) <= bound
    assert held.drain(lambda key: True) == sorted(set(keys))[:bound]


@given(st.lists(st.integers(0, 50), unique=True), st.data())
def test_taking_out_of_turn_leaves_the_others_in_order(
    keys: list[int], data: st.DataObject
) -> None:
    held = Holdback[int, int](count_max=100)
    for key in keys:
        held.put(key, key)
    taken = data.draw(st.lists(st.sampled_from(keys), unique=True)) if keys else []
    assert [held.take(key) for key in taken] == taken
    assert held.drain(lambda key: True) == sorted(set(keys) - set(taken))


@given(st.lists(st.tuples(st.booleans(), st.integers(-1000, 1000))))
def test_a_hybrid_clock_never_goes_back(steps: list[tuple[bool, int]]) -> None:
    clock = HybridClock()
    last = clock.last
    for observes, time in steps:
        if observes:
            clock.observe(time)
            assert clock.last >= max(time, last)
        else:
            assert clock.tick(time) > last
        last = clock.last


def test_a_newer_view_has_the_greater_number() -> None:
    assert View.of(2, ["a"]).newer_than(View.of(1, ["a", "b"]))
    assert not View.of(1, ["a"]).newer_than(View.of(1, ["b"]))


def said(effects: object) -> list[object]:
    return [m for e in effects if isinstance(e, Send) for m in e.messages]  # type: ignore[attr-defined]


def test_silence_is_suspected_once_and_a_heartbeat_is_trusted_again() -> None:
    detector = Detector("a", view=View.of(1, "abc"), listeners=("a",), options=OPTIONS)
    detector.handle(0, Started())
    detector.handle(90, Received("b", (Heartbeat("b"),)))
    assert said(detector.handle(101, TimerFired(("look",)))) == [Suspected(("c",))]
    assert said(detector.handle(120, TimerFired(("look",)))) == []
    assert said(detector.handle(130, Received("c", (Heartbeat("c"),)))) == [Trusted(("c",))]


def test_who_has_left_the_view_is_not_suspected() -> None:
    detector = Detector("a", view=View.of(1, "abc"), listeners=("a",), options=OPTIONS)
    detector.handle(0, Started())
    detector.handle(1, Command((Install(View.of(2, "ab")),)))
    assert said(detector.handle(500, TimerFired(("look",)))) == [Suspected(("b",))]
