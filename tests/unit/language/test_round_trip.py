"""The law of printing: the text of a subscription reads back as the same subscription."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from concordant.errors import UsageError
from concordant.language import parse
from concordant.language.clauses import ORDER_LEVELS
from concordant.language.normal import distinct
from concordant.model.expression import Arithmetic, Attribute, Constant, Expression, Slot
from concordant.model.kind import INT_MAX, INT_MIN, RESERVED, Kind
from concordant.model.predicate import Comparison, Wildcard, conjunction_of
from concordant.model.subscription import (
    QUEUED_COUNT_MAX,
    Conjunction,
    Consume,
    Emit,
    Field,
    Match,
    Policy,
    Subscription,
)

ODD_NAMES = ["and", "order", "true", "by", "match", "a b", "market.quotes", "`", "\\", "", "é", "s"]
names = st.sampled_from(["A", "B", "Order", "x_1", *ODD_NAMES]) | st.text(max_size=5)
attribute_names = st.lists(names, min_size=1, max_size=3).map(".".join)
slots = st.builds(Slot, names, st.integers(1, 4))
attributes = st.builds(Attribute, slots, attribute_names)
numbers = st.integers(INT_MIN, INT_MAX).map(lambda v: Constant(v, Kind.INT)) | st.floats(
    allow_nan=False, allow_infinity=False
).map(lambda v: Constant(v, Kind.FLOAT))
constants = (
    numbers
    | st.text(max_size=8).map(lambda v: Constant(v, Kind.STRING))
    | st.booleans().map(lambda v: Constant(v, Kind.BOOL))
)
OPERATORS = st.sampled_from("+-*/")


def arithmetic(leaves: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.recursive(
        leaves, lambda inner: st.builds(Arithmetic, OPERATORS, inner, inner), max_leaves=6
    )


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    one, other = draw(attributes), draw(attributes)
    left = draw(arithmetic(st.just(one) | numbers | st.just(other)))
    right = draw(arithmetic(st.just(one) | numbers) | constants)
    return Comparison(draw(st.sampled_from(["<", ">", "<=", ">=", "=", "!="])), left, right)


@st.composite
def subscriptions(draw: st.DrawFn) -> Subscription | None:
    predicates = st.lists(comparisons() | st.builds(Wildcard, slots), min_size=1, max_size=3)
    try:
        conjunctions = distinct(
            Conjunction(conjunction_of(found))
            for found in draw(st.lists(predicates, min_size=1, max_size=3))
        )
    except UsageError:  # no slot, or the same attribute on both sides
        return None
    common = sorted(
        slot
        for slot in {s for p in conjunctions[0].predicates for s in p.slots}
        if all(c.instances.get(slot.topic, 0) >= slot.instance for c in conjunctions)
    )
    leaves = numbers
    if common:
        leaves = numbers | st.builds(Attribute, st.sampled_from(common), attribute_names)
    fields = st.lists(
        st.builds(
            Field,
            attribute_names.filter(lambda n: n not in RESERVED),
            arithmetic(leaves) | constants,
        ),
        max_size=3,
        unique_by=lambda field: field.name,
    ).map(tuple)
    return Subscription(
        draw(names),
        conjunctions,
        draw(
            st.builds(
                Policy,
                st.sampled_from(Match),
                st.booleans(),
                st.booleans(),
                st.sampled_from(Consume),
            )
        ),
        tuple(
            draw(
                st.lists(attribute_names.filter(lambda n: n != "position"), max_size=2, unique=True)
            )
        ),
        draw(st.none() | st.integers(0, INT_MAX)),
        draw(st.none() | st.integers(4, INT_MAX)),
        draw(st.just(QUEUED_COUNT_MAX) | st.integers(1, INT_MAX)),
        draw(st.none() | st.builds(Emit, names, fields)),
        draw(st.none() | st.sampled_from(ORDER_LEVELS)),
    )


@given(subscriptions())
@settings(max_examples=100)
def test_printed_text_reads_back_as_the_same_subscription(subscription: Subscription | None):
    if subscription is not None:
        (found,) = parse(str(subscription))
        assert found == subscription
        assert repr(found) == repr(subscription)  # of the same Python types, too


@given(st.lists(subscriptions(), max_size=3, unique_by=lambda s: s and s.name))
@settings(max_examples=15)
def test_several_printed_subscriptions_read_back_in_order(found: list[Subscription | None]):
    written = tuple(s for s in found if s is not None)
    if written:
        assert parse("\n".join(str(s) for s in written)) == written


@given(st.text(alphabet=st.sampled_from(list("AB.x[]()12 ><=!+-*/\"'`#:,\n")), max_size=30))
@settings(max_examples=300)
def test_any_text_parses_or_is_refused_with_a_usage_error(text: str):
    try:
        parse(text)
    except UsageError as error:
        assert error.message and error.place


WORDS = [
    *("A", "B.x", "T[2].y", "5", "5min", "1.5", "'a'", "true", "and", "or", "not", "then", "("),
    *(")", "+", "-", "*", "/", "<", "=", "!=", ",", ":", "match", "first", "recent", "consume"),
    *("prefix", "partition", "by", "within", "cap", "all", "emit", "order", "total", "name:"),
    *(".", "[", "]", "frist", "null", "AND"),
]


@given(st.lists(st.sampled_from(WORDS), max_size=12))
@settings(max_examples=400)
def test_any_words_parse_or_are_refused_with_a_usage_error(words: list[str]):
    try:
        found = parse(" ".join(words))
    except UsageError as error:
        assert error.message and error.place
    else:
        assert parse("\n".join(str(s) for s in found)) == found
