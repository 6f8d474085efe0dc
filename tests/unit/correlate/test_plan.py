"""Plans: slots, parts, who reads what, and when a fingerprint changes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from concordant.correlate.plan import ConjunctionPlan, compile_plan
from concordant.errors import UsageError
from concordant.model.expression import Slot
from concordant.model.kind import Kind
from concordant.model.subscription import Conjunction, Emit, Subscription
from concordant.model.topic import Topic, TopicOrder, schemas
from tests.examples import A2, B2, TOPICS, A, B, C, both, compare, policy, then

D, E = Slot("D", 1), Slot("E", 1)
SCHEMAS = schemas(TOPICS)


def conjunction_plan(
    conjunction: Conjunction, words: str = "", topic_order: TopicOrder | None = None
) -> ConjunctionPlan:
    asked = Subscription("S", (conjunction,), policy(words))
    plan = compile_plan([asked], SCHEMAS, topic_order=topic_order or TopicOrder())
    return plan.subscriptions[0].conjunctions[0]


def fingerprint(asked: Subscription, topic_order: TopicOrder | None = None) -> str:
    plan = compile_plan([asked], SCHEMAS, topic_order=topic_order or TopicOrder())
    return plan.subscriptions[0].fingerprint


def names(found: ConjunctionPlan) -> list[str]:
    return [str(slot) for slot in found.whole.slots]


# --- slots ----------------------------------------------------------------------------------------


def test_slots_are_in_topic_order_and_then_by_instance() -> None:
    assert names(conjunction_plan(both(C, B2, A))) == ["A[1]", "B[1]", "B[2]", "C[1]"]


def test_a_given_topic_order_comes_first_and_the_rest_by_code_points() -> None:
    found = conjunction_plan(both(C, B2, A), topic_order=TopicOrder(("B", "Z")))
    assert names(found) == ["B[1]", "B[2]", "A[1]", "C[1]"]
    assert found.whole.topics == ("B", "A", "C")
    assert found.whole.slots_of_topic == {"B": range(2), "A": range(2, 3), "C": range(3, 4)}


def test_predicates_are_sorted_by_the_slots_they_name() -> None:
    less, one = compare(A2, "<", B), compare(A, "=", 1)
    whole = conjunction_plan(both(less, one)).whole
    assert [[str(p) for p in unary] for unary in whole.unary] == [["A[1].a = 1"], [], []]
    assert [[(b.left, b.right) for b in binary] for binary in whole.binary] == [
        [],
        [(1, 2)],
        [(1, 2)],
    ]


def test_the_indexes_of_a_pair_follow_the_given_topic_order() -> None:
    whole = conjunction_plan(both(compare(A, "<", B)), topic_order=TopicOrder(("B",))).whole
    (pair,) = whole.binary[0]
    assert (pair.left, pair.right) == (0, 1)
    assert str(pair.predicate) == "A[1].a < B[1].a"


# --- parts ----------------------------------------------------------------------------------------


def parts(conjunction: Conjunction, topic_order: TopicOrder | None = None) -> list[list[str]]:
    found = conjunction_plan(conjunction, "staged", topic_order)
    return [[str(slot) for slot in part.slots] for part in found.parts]


def test_without_staged_a_conjunction_is_one_part() -> None:
    found = conjunction_plan(both(A, B, C))
    assert found.parts == (found.whole,)
    assert found.part_of_topic == {"A": 0, "B": 0, "C": 0}


def test_topics_without_a_common_predicate_are_parts_of_their_own() -> None:
    assert parts(both(A2, B, C)) == [["A[1]", "A[2]"], ["B[1]"], ["C[1]"]]


def test_all_instances_of_a_topic_are_in_one_part() -> None:
    assert parts(both(A2, compare(A2, "=", C), B)) == [["A[1]", "A[2]", "C[1]"], ["B[1]"]]


def test_then_connects_topics_as_every_binary_predicate_does() -> None:
    assert parts(both(then(B, C), A)) == [["A[1]"], ["B[1]", "C[1]"]]


def test_parts_that_meet_late_are_one_part() -> None:
    chain = both(compare(A, "=", B), compare(C, "=", D), compare(B, "=", D), E)
    assert parts(chain) == [["A[1]", "B[1]", "C[1]", "D[1]"], ["E[1]"]]


def test_parts_are_ordered_by_their_first_topic() -> None:
    asked = both(compare(A, "=", C), B)
    assert parts(asked, TopicOrder(("B",))) == [["B[1]"], ["A[1]", "C[1]"]]
    assert parts(asked, TopicOrder(("C",))) == [["C[1]", "A[1]"], ["B[1]"]]


def test_a_part_knows_only_its_own_predicates() -> None:
    found = conjunction_plan(both(compare(A, "=", 1), compare(B, "=", C)), "staged")
    one, two = found.parts
    assert (len(one.unary[0]), one.binary) == (1, ((),))
    assert [len(binary) for binary in two.binary] == [1, 1]
    assert found.part_of_topic == {"A": 0, "B": 1, "C": 1}


# --- subscriptions --------------------------------------------------------------------------------


def test_conjunctions_are_in_canonical_order_and_found_by_their_number() -> None:
    late, early = both(B), both(A)
    (plan,) = compile_plan([Subscription("S", (late, early))], SCHEMAS).subscriptions
    assert [c.number for c in plan.conjunctions] == [2, 1]
    assert plan.by_number[1].whole.topics == ("B",)


def test_subscriptions_are_ordered_by_depth_and_then_by_name() -> None:
    asked = [
        Subscription("a", (both(E),)),
        Subscription("b", (both(D),), emit=Emit("E")),
        Subscription("d", (both(A),), emit=Emit("D")),
        Subscription("c", (both(A, B),), emit=Emit("E")),
    ]
    plan = compile_plan(asked, SCHEMAS)
    assert [(s.name, s.depth) for s in plan.subscriptions] == [
        ("c", 0),
        ("d", 0),
        ("b", 1),
        ("a", 2),
    ]
    assert plan.topic_depth == {"D": 1, "E": 2}
    assert plan.readers == {"A": (0, 1), "B": (0,), "D": (2,), "E": (3,)}
    assert plan.by_name["b"].depth == 1


def test_no_subscription_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no subscription"):
        compile_plan([], SCHEMAS)


def test_two_subscriptions_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two subscriptions are called 'S'"):
        compile_plan([Subscription("S", (both(A),)), Subscription("S", (both(B),))], SCHEMAS)


def test_a_subscription_that_feeds_itself_is_refused() -> None:
    with pytest.raises(UsageError, match="feed each other in a circle: S"):
        compile_plan([Subscription("S", (both(D),), emit=Emit("D"))], SCHEMAS)


def test_subscriptions_that_feed_each_other_are_refused_and_named() -> None:
    asked = [
        Subscription("one", (both(E),), emit=Emit("D")),
        Subscription("two", (both(D),), emit=Emit("E")),
        Subscription("innocent", (both(D),)),
    ]
    with pytest.raises(UsageError, match=r"in a circle: one, two\n"):
        compile_plan(asked, SCHEMAS)


# --- fingerprints ---------------------------------------------------------------------------------

ASKED = Subscription("S", (both(compare(A, "=", B)), both(C)))


def test_the_same_subscription_has_the_same_fingerprint() -> None:
    again = Subscription("S", (both(compare(B, "=", A)), both(C)))
    assert fingerprint(again) == fingerprint(ASKED)


@pytest.mark.parametrize(
    "changed",
    [
        replace(ASKED, name="T"),
        replace(ASKED, conjunctions=ASKED.conjunctions[::-1]),
        replace(ASKED, conjunctions=(both(compare(A, "!=", B)), both(C))),
        *(replace(ASKED, policy=policy(w)) for w in ("recent", "contiguous", "staged", "slide")),
        replace(ASKED, partition_by=("k",)),
        replace(ASKED, within_us=1),
        replace(ASKED, queue_count_max=9),
        replace(ASKED, queued_count_max=9),
        replace(ASKED, emit=Emit("D")),
    ],
    ids=lambda changed: str(changed).replace("\n", " "),
)
def test_any_change_of_a_subscription_changes_its_fingerprint(changed: Subscription) -> None:
    assert fingerprint(changed) != fingerprint(ASKED)


def test_a_changed_schema_changes_the_fingerprint() -> None:
    changed = {**SCHEMAS, "A": Topic("A", {"a": Kind.FLOAT, "k": Kind.STRING})}
    (plan,) = compile_plan([ASKED], changed).subscriptions
    assert plan.fingerprint != fingerprint(ASKED)


def test_a_topic_that_is_not_read_does_not_change_the_fingerprint() -> None:
    (plan,) = compile_plan([ASKED], {**SCHEMAS, "Z": Topic("Z")}).subscriptions
    assert plan.fingerprint == fingerprint(ASKED)


def test_another_topic_order_changes_the_fingerprint_if_it_moves_a_slot() -> None:
    assert fingerprint(ASKED, TopicOrder(("B",))) != fingerprint(ASKED)
    assert fingerprint(ASKED, TopicOrder(("A", "B"))) == fingerprint(ASKED)
