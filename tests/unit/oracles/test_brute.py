"""The oracle against relations worked out by hand from `correlation.md`."""

from __future__ import annotations

import math

import pytest

from concordant.model.event import Event
from concordant.model.expression import Arithmetic, Attribute, Constant, Expression, Slot
from concordant.model.kind import Kind, Value
from concordant.model.predicate import Comparison
from concordant.model.subscription import Emit, Field, Subscription
from concordant.model.topic import TopicOrder
from tests.examples import EXAMPLES, A, B, C, Example, attribute, both, compare, policy, stream
from tests.oracles.brute import Entry, is_true, relations, value


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_oracle_gives_the_relations_written_by_hand(example: Example) -> None:
    position = {event.id: place for place, event in enumerate(example.events, start=1)}
    found = relations(example.subscriptions, example.events)
    for name, expected in example.expected.items():
        delivered = [r for r in found if r.subscription == name]
        assert tuple(tuple(position[i] for i in r.event_ids) for r in delivered) == expected


def test_topic_order_decides_the_order_of_slots() -> None:
    asked = Subscription("S", (both(A, B),))
    (relation,) = relations([asked], stream("A B"), topic_order=TopicOrder(("B",)))
    assert [event.topic for event in relation.events] == ["B", "A"]


def test_topic_order_decides_which_topic_is_tried_first() -> None:
    asked = Subscription("S", (both(compare(A, "!=", B), C),))
    events = stream("A1 A2 B2 B3 B1 C")
    (usual,) = relations([asked], events)
    assert usual.event_ids == ("p:1", "p:3", "p:6")
    events = stream("A1 A2 B1 B3 C")
    (usual,) = relations([asked], events)
    (other,) = relations([asked], events, topic_order=TopicOrder(("B",)))
    assert usual.event_ids == ("p:1", "p:4", "p:5")
    assert other.event_ids == ("p:3", "p:2", "p:5")


def test_ordinals_count_per_conjunction_and_positions_per_subscription() -> None:
    asked = Subscription("S", (both(B), both(A)))
    found = relations([asked], stream("A B A"))
    assert [(r.conjunction, r.ordinal, r.position) for r in found] == [
        (2, 1, 1),
        (1, 1, 2),
        (2, 2, 3),
    ]


def test_the_cap_on_all_queued_events_removes_the_oldest_of_all() -> None:
    asked = Subscription("S", (both(compare(A, "=", B)),), queued_count_max=2)
    found = relations([asked], stream("A1 B9 A2 B1 A9"))
    # A1 goes when A2 comes, B9 when B1 comes
    assert found == []
    found = relations([asked], stream("A1 B9 A2 B2"))
    assert [r.event_ids for r in found] == [("p:3", "p:4")]


def test_nothing_is_too_old_when_the_input_is_not_ordered_by_time() -> None:
    asked = Subscription("S", (both(compare(A, "=", B)),), within_us=2, queue_count_max=1)
    events = stream("A2@9 A1@0 B2@9")
    assert relations([asked], events, time_ordered=False) == []


def test_a_derived_event_carries_time_position_and_identity_of_its_relation() -> None:
    pair = Subscription(
        "pair",
        (both(compare(A, "=", B)),),
        emit=Emit("D", (Field("x", attribute(A)), Field("none", attribute(B, "k")))),
    )
    d = Slot("D", 1)
    late = Comparison("<=", attribute(B, "position"), attribute(d, "position"))
    strict = Comparison("<", attribute(B, "position"), attribute(d, "position"))
    found = relations(
        [
            pair,
            Subscription("later", (both(strict),)),
            Subscription("also", (both(late),)),
        ],
        stream("A1 B1 A2 B2"),
    )
    one = Event("D", "pair", 1, 2, {"x": 1})
    two = Event("D", "pair", 2, 4, {"x": 2})
    events = stream("A1 B1 A2 B2")
    assert [(r.subscription, r.events, r.at.seq) for r in found] == [
        ("pair", (events[0], events[1]), 2),
        ("also", (events[1], one), 2),
        ("pair", (events[2], events[3]), 4),
        ("also", (events[3], two), 4),
        ("later", (events[1], two), 4),
    ]


def test_a_partitioned_subscription_emits_one_source_per_value() -> None:
    asked = Subscription("S", (both(A),), partition_by=("k",), emit=Emit("D"))
    seen = Subscription("T", (both(Slot("D", 1)),))
    found = relations([asked, seen], stream("Ak1 A Ak1"))
    ids = [r.event_ids[0] for r in found if r.subscription == "T"]
    assert ids == ['S/["k1"]:1', "S/[null]:1", 'S/["k1"]:2']


def test_staged_recent_disposes_each_part_on_its_own() -> None:
    asked = Subscription("S", (both(compare(A, "=", B), C),), policy("staged recent matched"))
    found = relations([asked], stream("C A1 A1 B1 B1 C"))
    assert [r.event_ids for r in found] == [("p:3", "p:4", "p:1"), ("p:2", "p:5", "p:6")]


INT, FLOAT = Kind.INT, Kind.FLOAT


@pytest.mark.parametrize(
    ("op", "left", "right", "expected"),
    [
        ("+", 1, 2, 3),
        ("+", 2**63 - 1, 1, None),
        ("-", -(2**63), 1, None),
        ("*", 2**62, 2.0, 2.0**63),
        ("/", 1, 2, 0.5),
        ("/", 1, 0, None),
        ("/", 0.0, 0.0, None),
        ("*", 1e308, 10.0, None),
        ("+", math.inf, 1, None),
        ("/", 1.0, math.inf, 0.0),
        ("+", math.nan, 1, None),
        ("+", None, 1, None),
    ],
)
def test_arithmetic_has_no_value_where_there_is_no_number(
    op: str, left: Value, right: Value, expected: Value
) -> None:
    event = Event("A", "p", 1, 0, {"a": left, "b": right})
    sum_of = Arithmetic(op, attribute(A), attribute(A, "b"))
    assert value(sum_of, {A: Entry(event, 1, 1, 1)}) == expected


@pytest.mark.parametrize(
    ("left", "op", "right", "expected"),
    [
        (2**53 + 1, "=", float(2**53), False),
        (2**53 + 1, ">", float(2**53), True),
        (1, "=", 1.0, True),
        (math.inf, ">", 5, True),
        (math.inf, "=", math.inf, True),
        (math.nan, "!=", 1.0, False),
        (None, "!=", 1, False),
        ("b", ">", "a", True),
        ("\ue000", "<", "\U0001f600", True),
        (True, "!=", False, True),
    ],
)
def test_comparisons_are_exact_and_false_without_a_value(
    left: Value, op: str, right: Value, expected: bool
) -> None:
    event = Event("A", "p", 1, 0, {"a": left, "b": right})
    question = Comparison(op, attribute(A), attribute(A, "b"))
    assert is_true(question, {A: Entry(event, 1, 1, 1)}) is expected


def test_a_missing_attribute_is_a_null() -> None:
    event = Event("A", "p", 1, 0)
    sides: list[Expression] = [Attribute(A, "a"), Constant(1, INT), Constant(1.0, FLOAT)]
    assert not is_true(Comparison("!=", sides[0], sides[1]), {A: Entry(event, 1, 1, 1)})
    assert not is_true(Comparison("!=", sides[0], sides[2]), {A: Entry(event, 1, 1, 1)})
