"""The overlay and the filters: pure functions of subscriptions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from concordant.language import parse
from concordant.model.event import Event
from concordant.order.merging.filters import ALL, ALTERNATIVE_COUNT_MAX, Filter, filter_of, union
from concordant.order.merging.overlay import (
    hosts_of,
    name_of,
    nodes,
    parents,
    signature_named,
    signature_of,
)

TOPICS = st.sampled_from(["A", "B", "C", "D", "x+y", "back\\slash", "E F"])
SIGNATURES = st.lists(TOPICS, min_size=1, max_size=4, unique=True).map(lambda s: tuple(sorted(s)))
HOSTS = ("h1", "h2", "h3", "h4", "h5")


def wanted(text: str) -> Filter:
    return filter_of(parse(f"q: {text}")[0])


def event(topic: str, **attributes: int) -> Event:
    return Event(topic, "p", 1, 1, attributes)


@given(st.lists(SIGNATURES, min_size=1, max_size=4))
def test_every_merger_has_its_parents_and_nothing_else_is_there(signatures: list) -> None:
    found = nodes(signatures)
    for one in found:
        assert all(parent in found for parent in parents(one))
    needed = {s[:k] for s in signatures for k in range(1, len(s) + 1)}
    assert set(found) == needed | {(topic,) for s in signatures for topic in s}


@given(st.lists(SIGNATURES, min_size=1, max_size=3), SIGNATURES)
def test_a_new_subscription_only_adds_mergers(before: list, more: tuple) -> None:
    assert set(nodes(before)) <= set(nodes([*before, more]))


@given(SIGNATURES)
def test_names_are_read_back(signature: tuple[str, ...]) -> None:
    assert signature_named(name_of(signature)) == signature


@given(SIGNATURES, SIGNATURES)
def test_names_differ_where_signatures_do(one: tuple[str, ...], other: tuple[str, ...]) -> None:
    assert (name_of(one) == name_of(other)) == (one == other)


@given(SIGNATURES, st.permutations(HOSTS))
def test_everybody_computes_the_same_hosts(signature: tuple[str, ...], hosts: list[str]) -> None:
    found = hosts_of(signature, tuple(hosts), 3)
    assert found == hosts_of(signature, HOSTS, 3)
    assert len(set(found)) == 3


@given(SIGNATURES, st.sampled_from(HOSTS))
def test_a_host_that_goes_moves_only_its_own_mergers(signature: tuple, gone: str) -> None:
    before = hosts_of(signature, HOSTS, 3)
    after = hosts_of(signature, tuple(one for one in HOSTS if one != gone), 3)
    assert [one for one in before if one != gone] == [one for one in after if one in before]


def test_a_signature_has_each_topic_once_in_order() -> None:
    assert signature_of(parse("q: B[3] and A.x = B[2].x")[0].conjunctions[0]) == ("A", "B")


def test_a_filter_asks_for_the_unary_predicates_of_some_instance() -> None:
    one = wanted("A[1].x <= 1 and A[2].x >= 5 and B.y = A.y")
    assert one.passes(event("A", x=0)) and one.passes(event("A", x=9))
    assert not one.passes(event("A", x=3))
    assert one.passes(event("B", x=3)) and not one.passes(event("C", x=3))


def test_an_instance_without_predicates_lets_everything_through() -> None:
    # Wilkin 2015, fig. 3.4 l.23 reads `A[2].x >= 5` as a rule for every event (erratum 9).
    assert wanted("A[2].x >= 5 and B").passes(event("A", x=1))


def test_nothing_is_filtered_where_neighbours_or_positions_are_counted() -> None:
    assert wanted("A.x > 5 and B match first contiguous").topics == {"A": ALL, "B": ALL}
    assert wanted("A.x > 5 and A.position < B.position").topics == {"A": ALL, "B": ALL}


def test_a_union_passes_what_one_of_them_passes_and_covers_both() -> None:
    low, high = wanted("A.x <= 1 and B"), wanted("A.x >= 5 and C")
    both = union([low, high])
    assert both.covers(low) and both.covers(high) and not low.covers(both)
    assert not both.passes(event("A", x=3)) and both.passes(event("C"))
    assert union([low, wanted("A and B")]).topics["A"] == ALL


def test_too_many_alternatives_become_no_filter() -> None:
    few = [wanted(f"A.x = {n} and B") for n in range(ALTERNATIVE_COUNT_MAX)]
    assert union(few).topics["A"] != ALL
    assert union([*few, wanted("A.x = 99 and B")]).topics["A"] == ALL


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4), st.integers(0, 6))
def test_what_covers_passes_at_least_as_much(bounds: list[int], x: int) -> None:
    filters = [wanted(f"A.x >= {bound} and B") for bound in bounds]
    wide = union(filters)
    for one in filters:
        assert wide.covers(one)
        assert wide.passes(event("A", x=x)) or not one.passes(event("A", x=x))
