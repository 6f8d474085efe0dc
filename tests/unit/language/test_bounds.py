"""Bounds: large but sensible texts parse, absurd ones are refused quickly and without recursion."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from concordant.errors import UsageError
from concordant.language import parse, subscription, topic


@pytest.fixture(autouse=True)
def _quick() -> Iterator[None]:
    """Each of these takes a fraction of a second; a wide margin for a busy machine."""
    parse("A")  # the grammar is loaded once
    start = time.perf_counter()
    yield
    assert time.perf_counter() - start < 5


def refusal(text: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(text)
    return str(caught.value)


def test_a_hundred_parentheses_are_read():
    assert parse("(" * 100 + "A.x" + ")" * 100 + " > 1") == parse("A.x > 1")
    assert parse("not " * 100 + "A.x > 1") == parse("A.x > 1")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "A" + ")" * 10_000,
        "(" * 101,
        "not " * 10_000 + "A.x > 1",
        "not (" * 51 + "A.x > 1" + ")" * 51,
        "A.x > " + "(" * 10_000 + "1" + ")" * 10_000,
    ],
)
def test_deep_nesting_is_refused(text: str):
    assert "nested more than 100 deep" in refusal(text)


def test_many_shallow_nots_and_groups_are_read():
    text = " and ".join(f"not (A.x{i} > 1)" for i in range(300))
    assert len(parse(text)[0].conjunctions[0].predicates) == 300


def test_a_conjunction_of_a_thousand_predicates_is_read():
    text = " and ".join(f"A.x > {i}" for i in range(1_000))
    assert len(parse(text)[0].conjunctions[0].predicates) == 1_000


def test_a_conjunction_of_more_is_refused():
    text = " and ".join(f"A.x > {i}" for i in range(1_001))
    assert "more than 1,000 predicates" in refusal(text)


def test_a_disjunction_of_256_is_read_and_one_of_257_refused():
    found = parse(" or ".join(f"A.x > {i}" for i in range(256)))
    assert len(found[0].conjunctions) == 256
    assert "more than 256 conjunctions" in refusal(" or ".join(f"A.x > {i}" for i in range(257)))


def test_an_explosion_is_refused_while_distributing():
    text = " and ".join(f"(A.x{i} = 1 or A.x{i} = 2)" for i in range(40))
    start = time.perf_counter()
    message = refusal(text)
    assert time.perf_counter() - start < 1
    assert "more than 256 conjunctions" in message
    negated = "not (" + " or ".join(f"A.x{i} = 1 and A.x{i} = 2" for i in range(40)) + ")"
    assert "more than 256 conjunctions" in refusal(negated)


def test_the_same_disjunction_forty_times_is_no_explosion():
    found = parse(" and ".join(["(A.x = 1 or A.x = 2)"] * 40))
    assert [str(c) for c in found[0].conjunctions] == [
        "A[1].x = 1",
        "A[1].x = 1 and A[1].x = 2",
        "A[1].x = 2",
    ]


def test_arithmetic_of_64_operations_is_read_and_prints_as_it_reads():
    (found,) = parse("A.x" + " + A.y" * 64 + " > 1")
    assert parse(str(found)) == (found,)


@pytest.mark.parametrize("count", [65, 20_000])
def test_longer_arithmetic_is_refused(count: int):
    assert "more than 64 operations" in refusal("A.x" + " + A.y" * count + " > 1")
    assert "more than 64 operations" in refusal("A.z > " + "-" * count + "A.x")


def test_a_long_text_is_refused_before_it_is_read():
    assert "characters" in refusal("A" * (2**20 + 1))


def test_a_builder_is_bounded_as_well():
    a = topic("A")
    formula = a.x0 > 1
    for i in range(1, 1_000):
        formula = formula & (a.attr(f"x{i}") > 1)
    assert len(subscription(formula).conjunctions[0].predicates) == 1_000
    for i in range(2_000):
        formula = ~formula | (a.y > i)
    with pytest.raises(UsageError, match="nested more than 100 deep"):
        subscription(formula)
    value = a.x
    with pytest.raises(UsageError, match="more than 64 operations"):
        for _ in range(65):
            value = value + 1
