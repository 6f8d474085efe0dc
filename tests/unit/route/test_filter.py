"""The laws of filters: overlap and covering say exactly what some event, or every event, does."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concordant.errors import UsageError
from concordant.model.event import Event
from concordant.route.filter import (
    CONSTRAINT_COUNT_MAX,
    Filter,
    Interval,
    between,
    equal,
    filter_of,
    prefix,
)

NUMBERS = st.integers(0, 4) | st.sampled_from([0.5, 1.5, 2.5, 3.5])
STRINGS = st.text("ab", max_size=3)
VALUES = NUMBERS | STRINGS | st.booleans()


@st.composite
def intervals(draw: st.DrawFn) -> Interval:
    kind = draw(st.sampled_from([NUMBERS, STRINGS]))
    shape = draw(st.sampled_from(["point", "range", "from", "to", "prefix", "bool"]))
    if shape == "bool":
        return equal(draw(st.booleans()))
    if shape == "prefix":
        return prefix(draw(STRINGS))
    one, two = sorted([draw(kind), draw(kind)])
    opens = (draw(st.booleans()), draw(st.booleans())) if one != two else (False, False)
    if shape == "point":
        return equal(one)
    return Interval(None if shape == "to" else one, None if shape == "from" else two, *opens)


FILTERS = st.builds(
    filter_of,
    st.sampled_from(["", "S", "T"]),
    st.dictionaries(st.sampled_from(["x", "y"]), intervals(), max_size=2),
)
EVENTS = st.builds(
    lambda topic, attributes: Event(topic, "p", 1, 0, attributes),
    st.sampled_from(["S", "T"]),
    st.dictionaries(st.sampled_from(["x", "y"]), VALUES | st.none(), max_size=2),
)


@settings(max_examples=120)
@given(FILTERS, FILTERS, EVENTS)
def test_what_two_filters_both_mean_lies_in_their_overlap(a: Filter, b: Filter, e: Event) -> None:
    if a.matches(e) and b.matches(e):
        assert a.overlaps(b)


@settings(max_examples=120)
@given(FILTERS, FILTERS, EVENTS)
def test_a_covering_filter_means_whatever_the_other_means(a: Filter, b: Filter, e: Event) -> None:
    if a.covers(b) and b.matches(e):
        assert a.matches(e)


@settings(max_examples=120)
@given(FILTERS, FILTERS, FILTERS)
def test_covering_is_an_order_and_overlap_is_symmetric(a: Filter, b: Filter, c: Filter) -> None:
    assert a.covers(a) and a.overlaps(a)
    assert a.overlaps(b) == b.overlaps(a)
    if a.covers(b) and b.covers(c):
        assert a.covers(c)
    if a.covers(b) and b.covers(a):
        assert str(a) == str(b)
    if a.covers(b) and b.overlaps(c):
        assert a.overlaps(c)


@settings(max_examples=120)
@given(intervals(), intervals())
def test_intervals_that_overlap_have_a_value_in_common(a: Interval, b: Interval) -> None:
    numbers = [n / 4 for n in range(-2, 20)]
    letters = ["", "a", "b"]
    strings = [x + y + z + w for x in letters for y in letters for z in letters for w in letters]
    values = [*numbers, *strings, True, False, "\uffff"]
    common = any(a.holds(value) and b.holds(value) for value in values)
    assert a.overlaps(b) >= common
    if a.domain == b.domain != equal("a").domain:  # of strings, there may be one that is not listed
        assert a.overlaps(b) == common


@given(STRINGS, st.text(max_size=4))
def test_a_prefix_holds_what_begins_with_it_and_nothing_else(start: str, text: str) -> None:
    assert prefix(start).holds(text) == text.startswith(start)
    assert prefix(start).holds(start + text)


@pytest.mark.parametrize("start", ["a\U0010ffff", "\U0010ffff", "\ud7ff"])
def test_a_prefix_may_end_at_the_end_of_the_code_points(start: str) -> None:
    assert prefix(start).holds(start + "z")
    assert not prefix(start).holds(start[:-1])
    assert not prefix(start).holds("a")


def test_true_is_not_one_and_nothing_is_not_a_number() -> None:
    assert not equal(1).holds(True)
    assert not equal(True).holds(1)
    assert equal(1).holds(1.0)
    assert not between(None, 5).holds(float("nan"))
    assert not between(None, 5).holds(None)


@pytest.mark.parametrize(
    ("low", "high", "says"),
    [
        (2, 1, "nothing lies between 2 and 1"),
        (1, "a", "do not compare"),
        (True, 1, "do not compare"),
        (None, None, "at least one end"),
        (float("nan"), None, "NaN"),
    ],
)
def test_an_interval_that_makes_no_sense_is_refused(low: object, high: object, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        between(low, high)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=says):
        Interval(low, high)  # type: ignore[arg-type]


def test_a_filter_of_a_stranger_is_checked_when_it_is_decoded() -> None:
    for sent in (["T", [["x", [2, 1]]]], ["T", [["y", [1]], ["x", [1]]]], ["T", [["x", [[], 1]]]]):
        with pytest.raises(msgspec.ValidationError):
            msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=Filter)


def test_a_filter_names_a_bounded_number_of_attributes() -> None:
    names = {f"a{n}": 1 for n in range(CONSTRAINT_COUNT_MAX)}
    assert len(filter_of("T", names).constraints) == CONSTRAINT_COUNT_MAX
    with pytest.raises(UsageError, match="may name 64 attributes"):
        filter_of("T", names, one_more=1)
