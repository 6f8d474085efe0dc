"""Subscriptions against schemas: what fits, what is refused, what is derived."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from concordant.errors import UsageError
from concordant.language import check, depths, derived_topics, parse, subscription, topic
from concordant.model.expression import Constant
from concordant.model.kind import Kind
from concordant.model.predicate import Comparison
from concordant.model.topic import Topic, schemas

KINDS = {
    "i": Kind.INT,
    "f": Kind.FLOAT,
    "s": Kind.STRING,
    "b": Kind.BOOL,
    "t": Kind.TIME,
    "n": Kind.NULL,
    "customer.city": Kind.STRING,
}
KNOWN = schemas(
    [Topic("A", KINDS), Topic("B", {**KINDS, "k": Kind.INT}), Topic("C", {"i": Kind.STRING})]
)


@pytest.mark.parametrize(
    "text",
    [
        "A.i < B.f and A.i = 2.5 and A.f != 3",
        "A.s < B.s and A.s >= 'x' and A.customer.city = 'Rome'",
        "A.b = B.b and A.b != true",
        "A.t < B.time and A.time - B.t < 5 min and A.t + 5 min < B.t and 5 min + A.t > B.t",
        "A.time > '2026-01-31T09:30:00Z' and '2026-01-31' != A.t",
        "A.time - '2026-01-31' > 5 min",
        "A then B",
        "A.i + B.f * 2 / 3 - A.i > -1",
        "A.n = 'x' and A.n < 3 and A.n = true and A.n + 1 > 'x' and A.n < A.t",
        "A.seq > 3 and A.source = 'x' partition by source",
        "A and B partition by i, customer.city",
        "A and B partition by n",
    ],
)
def test_what_fits_is_accepted(text: str):
    found = check(parse(text), KNOWN)
    assert [len(s.conjunctions[0].predicates) for s in found] == [
        len(s.conjunctions[0].predicates) for s in parse(text)
    ]


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("D", "there is no topic 'D': the topics are A, B, C", ""),
        ("a.i = 1", "there is no topic 'a'", "did you mean 'A'?"),
        ("A.ii = 1", "has no attribute 'ii': its attributes are i (int), f (float)", "'i'"),
        ("A.customer = 'x'", "customer.city (string)", "did you mean 'customer.city'?"),
        ("A.i = 'x'", 'A[1].i is an int, and "x" is a string', "quotes"),
        ("A.s = 3", "A[1].s is a string, and 3 is an int", 'into quotes: "3"'),
        ("A.s = B.i", "they cannot be compared", "same kind"),
        ("A.b < true", "bools compare only by = and !=", ""),
        ("A.b = 1", "A[1].b is a bool, and 1 is an int", ""),
        ("A.t = 5", "A[1].t is a time, and 5 is an int", "2026-01-31T09:30:00Z"),
        ("A.t = 'yesterday'", "'yesterday' is not a time", "ISO 8601"),
        ("A.t = B.s", "A[1].t is a time, and B[1].s is a string", ""),
        ("A.position < 5", "A[1].position is a position", "A then B"),
        ("A.position < B.seq", "they cannot be compared", "A then B"),
        ("A.position + 1 < B.position", "arithmetic takes numbers", "A then B"),
        ("A.s + 1 > 2", "A[1].s is a string", ""),
        ("A.b * 2 > 2", "A[1].b is a bool", ""),
        ("A.t + B.t > 2", "cannot be joined by '+'", "subtracted"),
        ("A.t * 2 > 2", "cannot be joined by '*'", ""),
        ("A.t + 1.5 > B.t", "a time and a float cannot be joined by '+'", ""),
        ("5 - A.t > B.t", "cannot be joined by '-'", ""),
        ("A and C partition by f", "every topic, and topic 'C' has no attribute 'f'", ""),
        ("A and C partition by i", "'i' is int in 'A' but string in 'C'", ""),
        ("A emit B(x = A.i)", "emits 'B', which is a topic of the input", "another name"),
        ("A emit X(x = A.s + 1)", "in 'emit … x = (A[1].s + 1)'", ""),
        ("A emit X(x = A.position)", "a position cannot be emitted", ""),
    ],
)
def test_what_does_not_fit_is_refused(text: str, message: str, hint: str):
    with pytest.raises(UsageError) as caught:
        check(parse("wrong: " + text), KNOWN)
    assert "subscription 'wrong'" in caught.value.message
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_an_error_prints_the_predicate():
    with pytest.raises(UsageError) as caught:
        check(parse("mine: A.i > 1 and A.s > 3"), KNOWN)
    assert caught.value.message.startswith("subscription 'mine', in 'A[1].s > 3': ")


def test_a_string_beside_a_time_becomes_a_time():
    (found,) = check(parse("A.t > '1970-01-01T00:00:01Z' and A.s > '1970-01-01'"), KNOWN)
    time, text = found.conjunctions[0].predicates
    assert isinstance(time, Comparison) and isinstance(text, Comparison)
    assert time.right == Constant(1_000_000, Kind.TIME)
    assert text.right == Constant("1970-01-01", Kind.STRING)


def test_a_checked_text_equals_the_built_subscription_and_checking_again_changes_nothing():
    a = topic("A")
    moment = datetime(2026, 1, 31, tzinfo=UTC)
    built = check([subscription(a.t - moment > 5)], KNOWN)
    assert built == check(parse("A.t - '2026-01-31' > 5"), KNOWN)
    assert check(built, KNOWN) == built
    assert check(parse(str(built[0])), KNOWN) == built


def test_times_written_differently_are_one_predicate_once_they_are_known():
    (found,) = check(parse("A.t > '1970-01-02' or A.t > '1970-01-02T00:00:00Z'"), KNOWN)
    assert len(found.conjunctions) == 1


CHAIN = """
top: X.half > 1 and Y then X
low: A emit X(half = A.i / 2, whole = A.i + 1, mixed = A.i * 2.0, text = "t", gone = A.n + 1,
              span = A.time - A.t, later = A.time + 1 s)
middle: X.text = "t" emit Y(half = X.half)
"""


def test_derived_topics_are_known_to_other_subscriptions_in_any_order():
    found = check(parse(CHAIN), KNOWN)
    assert [s.name for s in found] == ["top", "low", "middle"]
    assert depths(found) == (2, 0, 1)
    assert derived_topics(found, KNOWN) == {
        "X": Topic(
            "X",
            {
                "half": Kind.FLOAT,
                "whole": Kind.INT,
                "mixed": Kind.FLOAT,
                "text": Kind.STRING,
                "gone": Kind.NULL,
                "span": Kind.INT,
                "later": Kind.TIME,
            },
        ),
        "Y": Topic("Y", {"half": Kind.FLOAT}),
    }


def test_two_subscriptions_may_emit_one_topic_with_one_schema():
    same = parse("a: A emit X(v = A.i, w = A.n)\nb: B emit X(w = B.s, v = B.i)")
    assert derived_topics(same, KNOWN)["X"].attributes == {"v": Kind.INT, "w": Kind.STRING}


@pytest.mark.parametrize("other", ["v = B.s", "w = B.i", "v = B.i, w = 1", ""])
def test_two_schemas_for_one_topic_are_refused(other: str):
    text = f"a: A emit X(v = A.i)\nb: B emit X({other})"
    with pytest.raises(UsageError, match="'a' and 'b' both emit 'X'"):
        check(parse(text), KNOWN)


@pytest.mark.parametrize(
    "text",
    ["a: X emit X()", "a: X emit Y()\nb: Y and A emit Z()\nc: Z emit X()"],
)
def test_a_topic_that_feeds_itself_is_refused(text: str):
    with pytest.raises(UsageError, match="circle"):
        check(parse(text), KNOWN)
    with pytest.raises(UsageError, match="circle"):
        depths(parse(text))


def test_two_subscriptions_of_one_name_are_refused():
    with pytest.raises(UsageError, match="two subscriptions are called 'a'"):
        check([*parse("a: A"), *parse("a: B")], KNOWN)


def test_a_long_list_of_names_is_cut():
    many = schemas(Topic(f"T{i:02}") for i in range(50))
    with pytest.raises(UsageError, match="and 30 more"):
        check(parse("Unknown"), many)
