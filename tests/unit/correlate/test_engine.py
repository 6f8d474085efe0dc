"""The clear engine, rule by rule; relations are worked out by hand from `correlation.md`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from concordant.correlate.engine import Engine
from concordant.correlate.plan import compile_plan
from concordant.correlate.state import Counters
from concordant.errors import UsageError
from concordant.model.event import Event
from concordant.model.expression import Slot
from concordant.model.kind import Kind
from concordant.model.predicate import Comparison
from concordant.model.relation import Relation
from concordant.model.subscription import Conjunction, Emit, Field, Subscription
from concordant.model.topic import Topic, TopicOrder, schemas
from tests.examples import (
    A2,
    EXAMPLES,
    TOPICS,
    A,
    B,
    C,
    Example,
    attribute,
    both,
    compare,
    policy,
    stream,
)

D = Slot("D", 1)
PAIR = compare(A, "=", B)


def engine_for(
    *asked: Subscription, topic_order: TopicOrder | None = None, time_ordered: bool = True
) -> Engine:
    plan = compile_plan(asked, schemas(TOPICS), topic_order=topic_order or TopicOrder())
    return Engine(plan, time_ordered=time_ordered)


def ids(relations: Sequence[Relation]) -> list[tuple[str, ...]]:
    return [relation.event_ids for relation in relations]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_engine_gives_the_relations_written_by_hand(example: Example) -> None:
    position = {event.id: place for place, event in enumerate(example.events, start=1)}
    plan = compile_plan(example.subscriptions, schemas(example.topics))
    found = Engine(plan).step(example.events)
    for name, expected in example.expected.items():
        delivered = [r for r in found if r.subscription == name]
        assert tuple(tuple(position[i] for i in r.event_ids) for r in delivered) == expected


# --- admission ------------------------------------------------------------------------------------


def test_an_event_is_admitted_if_some_instance_takes_it() -> None:
    asked = Subscription("S", (both(compare(A, "=", 0), compare(A2, "=", 1)),))
    engine = engine_for(asked)
    assert ids(engine.step(stream("A0 A7 A1"))) == [("p:1", "p:3")]
    assert engine.counters["S"] == Counters(events=3, admitted=2, relations=1)


def test_an_instance_without_predicates_admits_everything() -> None:
    engine = engine_for(Subscription("S", (both(compare(A2, "=", 1)),)))
    assert ids(engine.step(stream("A9 A1"))) == [("p:1", "p:2")]
    assert engine.counters["S"].admitted == 2


def test_an_event_of_a_topic_nobody_asks_for_is_not_counted() -> None:
    engine = engine_for(Subscription("S", (both(A),)))
    engine.step(stream("B C A"))
    assert engine.counters["S"].events == 1


def test_an_event_that_was_not_admitted_still_counts_in_its_stream() -> None:
    asked = Subscription(
        "S", (both(compare(A, "=", 0), compare(A2, "=", 0)),), policy("contiguous")
    )
    assert ids(engine_for(asked).step(stream("A0 A5 A0 A0"))) == [("p:3", "p:4")]


# --- order ----------------------------------------------------------------------------------------


def test_conjunctions_take_an_event_in_canonical_order_and_keep_their_numbers() -> None:
    late, early = both(compare(A, ">", 0)), both(compare(A, "<", 9))
    assert late.canonical > early.canonical
    (one, two) = engine_for(Subscription("S", (late, early))).step(stream("A1"))
    assert [(r.conjunction, r.ordinal, r.position) for r in (one, two)] == [(2, 1, 1), (1, 1, 2)]


def test_a_disjunction_delivers_the_same_in_whichever_order_it_is_written() -> None:
    formulas = (both(PAIR), both(A2), both(B, compare(B, ">", 1)))
    events = stream("A1 B1 A2 B2 A1 A1 B1")

    def delivered(chosen: tuple[Conjunction, ...]) -> list[tuple[str, ...]]:
        return ids(engine_for(Subscription("S", chosen)).step(events))

    assert delivered(formulas) == delivered(formulas[::-1])
    assert len(delivered(formulas)) > 3


def test_subscriptions_take_an_event_by_name() -> None:
    asked = [Subscription(name, (both(A),)) for name in ("T", "S", "U")]
    found = engine_for(*asked).step(stream("A"))
    assert [r.subscription for r in found] == ["S", "T", "U"]


def test_a_given_topic_order_decides_slots_and_search() -> None:
    asked = Subscription("S", (both(compare(A, "!=", B), C),))
    events = stream("A1 A2 B1 B3 C")
    assert ids(engine_for(asked).step(events)) == [("p:1", "p:4", "p:5")]
    other = engine_for(asked, topic_order=TopicOrder(("B",)))
    assert ids(other.step(events)) == [("p:3", "p:2", "p:5")]


def test_a_relation_carries_its_key_and_the_event_that_completed_it() -> None:
    asked = Subscription("S", (both(A, B),), partition_by=("k",))
    (relation,) = engine_for(asked).step(stream("Ak1 Bk2 Bk1"))
    assert relation.key == ("k1",)
    assert relation.at.seq == 3
    assert relation.id == 'S/1["k1"]/1'


def test_steps_of_any_size_give_the_same_relations() -> None:
    asked = Subscription("S", (both(PAIR), both(A2)), policy("slide"))
    events = stream("A1 A1 B2 A2 B1 A1 B1 A2 B2")
    whole = engine_for(asked).step(events)
    engine = engine_for(asked)
    assert [r for event in events for r in engine.step([event])] == whole
    assert engine.step([]) == []


# --- bounds and counters --------------------------------------------------------------------------


def test_a_cap_removes_the_oldest_and_counts_it() -> None:
    engine = engine_for(Subscription("S", (both(PAIR),), queue_count_max=2))
    assert ids(engine.step(stream("A1 A2 A3 B1 B2"))) == [("p:2", "p:5")]
    assert engine.counters["S"] == Counters(events=5, admitted=5, relations=1, capped=1)


def test_a_cap_acts_after_the_search() -> None:
    engine = engine_for(Subscription("S", (both(A2, compare(A, "=", A2)),), queue_count_max=2))
    assert ids(engine.step(stream("A1 A2 A1"))) == [("p:1", "p:3")]
    assert engine.counters["S"].capped == 0


def test_a_cap_counts_per_topic_and_partition() -> None:
    engine = engine_for(Subscription("S", (both(A, B, C),), partition_by=("k",), queue_count_max=1))
    engine.step(stream("Ak1 Ak2 Bk1 Bk2"))
    assert engine.counters["S"].capped == 0
    engine.step([Event("A", "p", 9, 9, {"k": "k1"})])
    assert engine.counters["S"].capped == 1


def test_the_cap_on_all_events_removes_the_oldest_of_all_and_counts_it() -> None:
    engine = engine_for(Subscription("S", (both(PAIR),), queued_count_max=2))
    assert ids(engine.step(stream("A1 B9 A2 B2"))) == [("p:3", "p:4")]
    assert engine.counters["S"].capped == 1


def test_what_is_too_old_is_dropped_and_counted() -> None:
    engine = engine_for(Subscription("S", (both(A, B),), within_us=2))
    assert engine.step(stream("A@0 A@1 B@4")) == []
    assert engine.counters["S"] == Counters(events=3, admitted=3, expired=2)


def test_nothing_is_dropped_as_too_old_when_times_go_back_and_forth() -> None:
    asked = Subscription("S", (both(A, B),), within_us=2)
    events = stream("A@1 A@9 B@2")
    engine = engine_for(asked, time_ordered=False)
    assert ids(engine.step(events)) == [("p:1", "p:3")]
    assert engine.counters["S"].expired == 0


def test_within_includes_its_bound() -> None:
    asked = Subscription("S", (both(A, B),), within_us=2)
    assert ids(engine_for(asked).step(stream("A@0 B@2"))) == [("p:1", "p:2")]


def test_counters_are_kept_per_subscription() -> None:
    engine = engine_for(Subscription("S", (both(A),)), Subscription("T", (both(A2),)))
    engine.step(stream("A A A"))
    assert {name: c.relations for name, c in engine.counters.items()} == {"S": 3, "T": 1}


# --- derived events -------------------------------------------------------------------------------

PAIRS = Subscription(
    "pair",
    (both(PAIR),),
    emit=Emit("D", (Field("x", attribute(A)), Field("none", attribute(B, "k")))),
)


def test_a_relation_becomes_an_event_that_others_read_at_once() -> None:
    engine = engine_for(Subscription("seen", (both(D),)), PAIRS)
    pair, seen = engine.step(stream("A1 B1"))
    assert (pair.subscription, seen.subscription) == ("pair", "seen")
    assert seen.events == (Event("D", "pair", 1, 2, {"x": 1}),)
    assert seen.at == pair.at


def test_a_derived_event_has_the_position_of_its_completing_event() -> None:
    def asked(op: str) -> Subscription:
        sides = attribute(B, "position"), attribute(D, "position")
        return Subscription(f"S{op}", (both(Comparison(op, *sides)),))

    found = engine_for(PAIRS, asked("="), asked("<")).step(stream("A1 B1"))
    assert [r.subscription for r in found] == ["pair", "S="]


def test_an_event_without_a_field_in_its_emission_has_no_such_attribute() -> None:
    never = Comparison("!=", attribute(D, "none"), attribute(D, "x"))
    found = engine_for(PAIRS, Subscription("S", (both(never),))).step(stream("A1 B1"))
    assert [r.subscription for r in found] == ["pair"]


def test_a_partitioned_subscription_emits_one_source_per_value() -> None:
    asked = Subscription("S", (both(A),), partition_by=("k",), emit=Emit("D"))
    found = engine_for(asked, Subscription("T", (both(D),))).step(stream("Ak1 A Ak1"))
    derived = [r.event_ids[0] for r in found if r.subscription == "T"]
    assert derived == ['S/["k1"]:1', "S/[null]:1", 'S/["k1"]:2']


def test_a_shallow_derived_event_is_taken_before_a_deep_one() -> None:
    one = Subscription("one", (both(A),), emit=Emit("D"))
    two = Subscription("two", (both(D),), emit=Emit("E"))
    also = Subscription("zero", (both(A),), emit=Emit("D"))
    last = Subscription("last", (both(Slot("D", 2), Slot("E", 1)),))
    found = engine_for(one, two, also, last).step(stream("A"))
    assert [r.subscription for r in found] == ["one", "zero", "two", "two", "last"]
    assert found[-1].event_ids == ("one:1", "zero:1", "two:1")


def test_an_event_of_a_derived_topic_is_refused() -> None:
    engine = engine_for(PAIRS)
    with pytest.raises(UsageError, match=r"event p:1 has topic 'D', which a subscription emits"):
        engine.step([Event("D", "p", 1, 1)])


def test_topics_without_a_schema_are_read_as_they_come() -> None:
    plan = compile_plan([Subscription("S", (both(A),))], {"A": Topic("A", {"a": Kind.INT})})
    assert len(Engine(plan).step(stream("A B"))) == 1
