"""The checkers on small histories written by hand: what they find, and what they leave alone."""

from __future__ import annotations

import pytest

from concordant.check.agreement import common_beginnings, extends
from concordant.check.properties import INFEASIBLE, PROPERTIES, verdicts
from concordant.check.run import Run
from concordant.check.verdict import first_violation
from concordant.errors import UsageError
from concordant.language import parse
from concordant.model.event import Event
from concordant.model.history import Row


def subscribed(process: str, text: str) -> Row:
    return Row("r", process, "subscribe", subscription=process, text=text)


def published(source: str, seq: int, time: int, topic: str = "A", a: int = 0) -> Row:
    event = Event(topic, source, seq, time, {"a": a})
    return Row("r", source, "publish", time, topics=(topic,), events=(event.id,), event=event)


def delivered(process: str, time: int, *ids: str, conjunction: int = 1) -> Row:
    return Row(
        "r", process, "deliver", time, subscription=process, conjunction=conjunction, events=ids
    )


def violated(*rows: Row, repeats_from_us: int | None = None, prefix_until_us: int = 0) -> set[str]:
    run = Run.of(rows, repeats_from_us=repeats_from_us, prefix_until_us=prefix_until_us)
    return {one.name for one in verdicts(run, [*PROPERTIES, *INFEASIBLE]) if not one.holds}


TWO = (published("s", 1, 1), published("s", 2, 2))


def test_a_good_history_violates_nothing_and_exercises_something() -> None:
    rows = [
        subscribed("p1", "A"),
        subscribed("p2", "A"),
        *TWO,
        *(delivered(p, t, f"s:{t}") for p in ("p1", "p2") for t in (1, 2)),
    ]
    assert violated(*rows) == set()
    found = {one.name: one.checked for one in verdicts(Run.of(rows))}
    assert found["Conjunction Agreement"] and found["Type Total Order"] and found["Admission"]
    assert first_violation(verdicts(Run.of(rows))) is None


def test_an_event_in_two_relations_is_duplicated_and_in_one_slot_twice_so() -> None:
    rows = [subscribed("p1", "A[2]"), *TWO, published("s", 3, 3)]
    slots = [delivered("p1", 2, "s:1", "s:2"), delivered("p1", 3, "s:2", "s:3")]
    assert violated(*rows, *slots) == {"No Duplication"}
    again = [delivered("p1", 2, "s:1", "s:2"), delivered("p1", 3, "s:1", "s:3")]
    assert violated(*rows, *again) == {"No Duplication", "No Duplication′"}


def test_what_nobody_published_or_not_yet_is_created() -> None:
    assert violated(subscribed("p1", "A"), delivered("p1", 1, "s:1")) == {"No Creation"}
    rows = [subscribed("p1", "A"), delivered("p1", 0, "s:1"), published("s", 1, 1)]
    assert violated(*rows) == {"No Creation"}


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("A.a = 1", ("s:1",)),
        ("B", ("s:1",)),
        ("A[2]", ("s:2", "s:1")),
        ("A[1].a < A[2].a", ("s:1", "s:2")),
        ("A[1].position > A[2].position", ("s:1", "s:2")),
        ("A[2] within 0 s", ("s:1", "s:2")),
        ("A[2] partition by seq", ("s:1", "s:2")),
    ],
)
def test_a_relation_that_was_not_asked_for_is_not_admitted(text: str, ids: tuple[str, ...]) -> None:
    assert "Admission" in violated(subscribed("p1", text), *TWO, delivered("p1", 2, *ids))


def test_a_delivery_without_a_subscription_is_not_admitted() -> None:
    assert violated(*TWO, delivered("p1", 2, "s:1")) == {"Admission"}


def test_agreement_is_owed_by_processes_that_did_not_crash() -> None:
    rows = [subscribed("p1", "A"), subscribed("p2", "A"), *TWO, delivered("p1", 2, "s:1")]
    assert violated(*rows) == {"Conjunction Agreement"}
    assert violated(*rows, Row("r", "p2", "crash", 1)) == set()


def test_a_longer_subscription_may_deliver_less_and_nothing_else() -> None:
    rows = [subscribed("p1", "A"), subscribed("p2", "A and B"), *TWO, published("s", 3, 3, "B")]
    assert violated(*rows, delivered("p1", 1, "s:1"), delivered("p2", 3, "s:1", "s:3")) == set()
    wrong = violated(*rows, delivered("p1", 1, "s:1"), delivered("p2", 3, "s:2", "s:3"))
    assert wrong == {"Covering Agreement"}


def test_opposite_orders_are_found_across_processes_and_sources() -> None:
    rows = [
        subscribed("p1", "A"),
        subscribed("p2", "A"),
        published("s", 1, 1),
        published("t", 1, 2),
    ]
    one = [delivered("p1", 3, "s:1"), delivered("p1", 4, "t:1")]
    other = [delivered("p2", 3, "t:1"), delivered("p2", 4, "s:1")]
    orders = {"Type Total Order", "Conjunction Total Order", "Disjunction Total Order"}
    assert violated(*rows, *one, *other) == orders


def test_one_relation_here_and_two_there_is_no_crossing() -> None:
    rows = [subscribed("p1", "A[2]"), subscribed("p2", "A"), *TWO, delivered("p1", 2, "s:1", "s:2")]
    assert violated(*rows, delivered("p2", 1, "s:1"), delivered("p2", 2, "s:2")) == set()


def test_publishing_after_a_delivery_orders_the_two() -> None:
    rows = [
        subscribed("p1", "A"),
        subscribed("p2", "A.a = 0"),
        published("s", 1, 1),
        delivered("p1", 1, "s:1"),
        published("p1", 1, 2),
        delivered("p2", 3, "p1:1"),
        delivered("p2", 4, "s:1"),
    ]
    assert violated(*rows) == {"Type Local Order", "Type Causal Order", "Conjunction Local Order"}


def test_first_in_first_out_is_per_topic_or_across_topics() -> None:
    rows = [subscribed("p1", "A or B"), published("s", 1, 1), published("s", 2, 2, "B")]
    turned = [delivered("p1", 3, "s:2", conjunction=2), delivered("p1", 4, "s:1")]
    assert violated(*rows, *turned) == set()  # two conjunctions: each has an order of its own
    rows[0] = subscribed("p1", "A and B")
    more = [published("s", 3, 3), published("s", 4, 4, "B")]
    crossed = [delivered("p1", 4, "s:3", "s:2"), delivered("p1", 5, "s:1", "s:4")]
    across = violated(*rows, *more, *crossed)
    assert across == {"Type FIFO Order", "Type Causal Order", "Conjunction FIFO Order"}


def test_liveness_is_judged_only_where_the_run_repeats() -> None:
    rows = [subscribed("p1", "A"), *TWO]
    assert violated(*rows) == set()
    found = violated(*rows, repeats_from_us=2, prefix_until_us=1)
    assert found == {"Conjunction Validity", "Event Validity"}
    served = [delivered("p1", 1, "s:1"), delivered("p1", 2, "s:2")]
    assert violated(*rows, *served, repeats_from_us=2, prefix_until_us=1) == set()


def test_validity_asks_nothing_of_an_event_with_a_partner_of_its_own() -> None:
    rows = [subscribed("p1", "A.a = B.a"), published("s", 1, 1, a=7), published("s", 2, 2, "B")]
    assert violated(*rows, repeats_from_us=2, prefix_until_us=1) == set()


def test_the_story_of_a_violation_names_events_and_rows() -> None:
    run = Run.of(
        [subscribed("p1", "A"), *TWO, delivered("p1", 3, "s:2"), delivered("p1", 4, "s:1")]
    )
    (verdict,) = verdicts(run, ["Type FIFO Order"])
    assert str(verdict).splitlines() == [
        "Type FIFO Order: violated: s published s:1 before s:2, and p1 delivered s:2 before s:1",
        "  t=1 s published s:1 to A",
        "  t=2 s published s:2 to A",
        "  t=3 p1 delivered (s:2) for p1",
        "  t=4 p1 delivered (s:1) for p1",
    ]


def test_a_history_without_the_text_of_a_subscription_is_refused() -> None:
    with pytest.raises(UsageError, match="no text for the subscription"):
        Run.of([Row("r", "p1", "subscribe", subscription="p1")])


def conjunction(text: str) -> object:
    return parse(text)[0].conjunctions[0]


@pytest.mark.parametrize(
    ("longer", "shorter", "does"),
    [
        ("A and B", "A", True),
        ("A and B", "B", False),  # to the left
        ("A and B", "A and B", False),
        ("A.a = B.a and C", "A.a = B.a", True),
        ("A.a = B.a and C", "A", False),  # joined
        ("A[2] and B", "A", False),
        ("A.a = 1 and B", "A", False),
    ],
)
def test_a_conjunction_extends_another_to_the_right(longer: str, shorter: str, does: bool) -> None:
    assert extends(conjunction(longer), conjunction(shorter)) is does  # type: ignore[arg-type]


def test_common_beginnings_are_counted_in_slots() -> None:
    one, other = conjunction("A[2] and B and C"), conjunction("A[2] and B and D")
    assert common_beginnings(one, other) == (2, 3)  # type: ignore[arg-type]
