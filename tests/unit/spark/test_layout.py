"""Which subscriptions may be apart, and by what."""

from __future__ import annotations

import pytest

from concordant.language import parse
from concordant.spark.layout import sets_of


def keys(text: str) -> list[tuple[tuple[str, ...], list[str]]]:
    return [(one.key, [s.name for s in one.subscriptions]) for one in sets_of(parse(text))]


def test_subscriptions_with_one_key_share_a_set() -> None:
    text = "one: A then B partition by k\ntwo: B then C partition by k\nthree: A partition by j"
    assert keys(text) == [(("k",), ["one", "two"]), (("j",), ["three"])]


def test_without_a_key_subscriptions_are_together_as_far_as_they_share_topics() -> None:
    assert keys("one: A then B\ntwo: B then C\nthree: D") == [((), ["one", "two"]), ((), ["three"])]


@pytest.mark.parametrize(
    ("emitted", "key"),
    [("k = A.k", ("k",)), ("k = A.j", ()), ("j = A.k", ()), ("k = A.k + 1", ())],
)
def test_a_derived_event_keeps_its_relation_s_key_or_all_stay_together(
    emitted: str, key: tuple[str, ...]
) -> None:
    text = f"one: A partition by k emit E({emitted})\ntwo: E then A partition by k"
    assert keys(text) == [(key, ["one", "two"])]


def test_a_cap_over_a_whole_subscription_keeps_it_in_one_bucket() -> None:
    assert keys("one: A then B partition by k cap all 5") == [((), ["one"])]


def test_neighbours_are_counted_only_where_a_topic_has_several_instances() -> None:
    (one,) = sets_of(parse("A[1].x < A[2].x and B match first contiguous"))
    assert one.reads_neighbours("A")
    assert not one.reads_neighbours("B")
