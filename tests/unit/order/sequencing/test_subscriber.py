"""Which event is next, one step at a time."""

from __future__ import annotations

from concordant.model.event import Event
from concordant.order.sequencing.messages import Signed
from concordant.order.sequencing.subscriber import Merge, Ready


def signed(topic: str, n: int, **before: int) -> Signed:
    return Signed(n, Event(topic, f"p{topic}", n, n), {topic: n, **before})


def names(ready: list[Ready]) -> list[str]:
    return [f"{one.signed.event.topic}{one.signed.n}{'' if one.in_order else '?'}" for one in ready]


def merge(*topics: str, gap_count_max: int = 0) -> Merge:
    found = Merge(10, gap_count_max)
    for topic in topics:
        found.hold(topic, 0)
    return found


def test_an_event_waits_for_what_its_timestamp_names() -> None:
    held = merge("a", "b")
    assert names(held.offer(signed("a", 1, b=1))) == []
    assert names(held.offer(signed("b", 1, a=0))) == ["b1", "a1"]


def test_entries_of_topics_that_are_not_held_do_not_count() -> None:
    assert names(merge("a").offer(signed("a", 1, b=7))) == ["a1"]


def test_doubles_and_what_is_behind_are_dropped() -> None:
    held = merge("a")
    held.offer(signed("a", 1))
    assert names(held.offer(signed("a", 1))) == []
    held.offer(signed("a", 3))
    held.offer(signed("a", 3))
    assert list(held.missing()) == [("a", 2, 2)]
    assert names(held.offer(signed("a", 2))) == ["a2", "a3"]
    assert not held.ahead


def test_a_mark_tells_of_a_lost_tail_behind_what_waits() -> None:
    held = merge("a", "b")
    held.offer(signed("a", 1, b=1))
    held.mark("a", 3)
    assert list(held.missing()) == [("a", 2, 3)]


def test_who_leaves_a_topic_waits_for_it_no_longer() -> None:
    held = merge("a", "b")
    held.offer(signed("a", 1, b=1))
    assert names(held.leave("b")) == ["a1"]


def test_a_topic_begins_behind_what_was_delivered_meanwhile() -> None:
    held = merge("a")
    held.prepare("b")
    held.offer(signed("b", 2, a=0))
    held.offer(signed("b", 3, a=1))
    assert names(held.offer(signed("a", 1, b=2))) == ["a1"]  # b is not held, so it does not wait
    assert held.begin("b", 1) == 2
    assert names(held.follow(["b"])) == ["b3"]


def test_with_tags_an_event_goes_first_and_who_was_before_it_says_so() -> None:
    held = merge("a", "b", gap_count_max=10)
    held.offer(signed("a", 2, b=1), now=5)
    ready, passed = held.expire(4, count_max=10)
    assert (ready, passed) == ([], [])
    ready, passed = held.expire(5, count_max=10)
    assert (names(ready), passed) == (["a2"], ["a", "b"])
    assert sorted(held.missing()) == [("a", 1, 1), ("b", 1, 1)]
    assert names(held.offer(signed("b", 1, a=0))) == ["b1?"]
    assert names(held.offer(signed("b", 1, a=0))) == []
    assert names(held.offer(signed("a", 1, b=0))) == ["a1?"]
    assert not held.ahead


def test_what_is_before_the_oldest_goes_with_it_in_order() -> None:
    held = merge("a", "b", gap_count_max=10)
    held.offer(signed("a", 1, b=2), now=1)
    held.offer(signed("b", 2, a=0), now=2)
    ready, _ = held.expire(1, count_max=10)
    assert names(ready) == ["b2", "a1"]


def test_a_full_buffer_lets_the_oldest_go() -> None:
    held = merge("a", gap_count_max=10)
    for n in (2, 4, 6):
        held.offer(signed("a", n), now=n)
    ready, _ = held.expire(0, count_max=2)
    assert names(ready) == ["a2"]
    assert held.waiting_count == 2


def test_gaps_are_remembered_up_to_their_bound() -> None:
    held = merge("a", gap_count_max=3)
    held.offer(signed("a", 10), now=1)
    held.expire(1, count_max=0)
    assert sorted(held.gaps["a"]) == [7, 8, 9]
    assert names(held.offer(signed("a", 2))) == []


def test_a_holdback_that_is_full_keeps_what_is_nearest() -> None:
    held = Merge(2)
    held.hold("a", 0)
    for n in (9, 5, 3, 2):
        held.offer(signed("a", n))
    assert names(held.offer(signed("a", 1))) == ["a1", "a2", "a3"]
    assert list(held.missing()) == [("a", 4, 9)]


def test_what_is_lost_for_good_is_passed_over() -> None:
    held = merge("a", "b")
    held.offer(signed("b", 1, a=4))
    assert names(held.skip("a", 5)) == ["b1"]
    assert not held.ahead
