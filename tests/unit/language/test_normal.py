"""Disjunctive normal form: order, negation, equal conjunctions."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from concordant.errors import UsageError
from concordant.language import parse
from concordant.language.normal import And, Formula, Not, Or, conjunctions
from concordant.model.expression import Attribute, Constant, Slot
from concordant.model.kind import Kind
from concordant.model.predicate import Comparison, holds


def printed(text: str) -> list[str]:
    return [str(c).replace("[1]", "") for c in parse(text)[0].conjunctions]


def test_and_is_distributed_over_or_left_to_right():
    assert printed("(A.a=1 or A.b=1) and (A.c=1 or A.d=1)") == [
        "A.a = 1 and A.c = 1",
        "A.a = 1 and A.d = 1",
        "A.b = 1 and A.c = 1",
        "A.b = 1 and A.d = 1",
    ]


def test_negation_turns_operators_and_connectives_round():
    assert printed("not (A.a < 1 and (A.b = 2 or not A.c >= 3))") == [
        "A.a >= 1",
        "A.b != 2 and A.c >= 3",
    ]
    assert printed("not (A then B then C)") == [
        "A.position >= B.position",
        "B.position >= C.position",
    ]


def test_equal_conjunctions_are_dropped_and_the_first_kept():
    assert printed("A.a=1 and A.b=1 or A.c=1 or 1=A.b and A.a=1 and A.a=1") == [
        "A.a = 1 and A.b = 1",
        "A.c = 1",
    ]


def test_a_wildcard_that_a_comparison_implies_makes_no_difference():
    assert printed("A and A.x > 1 or A.x > 1") == ["A.x > 1"]


atoms = st.builds(
    lambda name, op, value: Comparison(
        op, Attribute(Slot("A", 1), name), Constant(value, Kind.INT)
    ),
    st.sampled_from("abc"),
    st.sampled_from(["<", ">=", "=", "!="]),
    st.integers(0, 1),
)
formulas = st.recursive(
    atoms,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda items: And(tuple(items)))
        | st.lists(inner, min_size=1, max_size=3).map(lambda items: Or(tuple(items)))
        | inner.map(Not)
    ),
    max_leaves=8,
)


def truth(formula: Formula, values: dict[str, int]) -> bool:
    if isinstance(formula, And):
        return all(truth(item, values) for item in formula.items)
    if isinstance(formula, Or):
        return any(truth(item, values) for item in formula.items)
    if isinstance(formula, Not):
        return not truth(formula.item, values)
    return holds(formula, lambda slot, name: values[name])


@given(formulas)
def test_the_normal_form_is_true_exactly_when_the_formula_is(formula: Formula):
    try:
        found = conjunctions(formula)
    except UsageError:
        return
    for a, b, c in itertools.product(range(2), repeat=3):
        values = {"a": a, "b": b, "c": c}
        normal = any(all(truth(p, values) for p in c.predicates) for c in found)
        assert normal == truth(formula, values)
    assert len({frozenset(c.predicates) for c in found}) == len(found)
