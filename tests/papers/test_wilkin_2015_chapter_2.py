"""Wilkin 2015, chapter 2: the lemmas and theorems about FRIP and D-FRIP.

FRIP is `match first consume prefix` over a total order, D-FRIP the same for disjunctions. Lemmas 7
to 11 and theorem 2.3.2 are about total order broadcast and stand with it.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from concordant.check.run import Asked
from concordant.correlate import consumption, engine, matching
from concordant.guarantees.scene import Scene, play
from concordant.guarantees.search import violated
from concordant.guarantees.stored import stored_scene
from concordant.language import parse
from concordant.model.predicate import Comparison
from concordant.model.subscription import Consume, Match, Policy, Subscription
from tests.detection.bugs import around
from tests.detection.property_bugs import known
from tests.examples import stream
from tests.papers.claims import (
    assert_kept,
    disjunction,
    one_conjunction,
    shows,
)

FRIP = Policy()
STAGED = Policy(staged=True)


def single_instances(subscription: Subscription) -> bool:
    return all(set(c.instances.values()) == {1} for c in subscription.conjunctions)


def without_binary(subscription: Subscription) -> bool:
    predicates = [p for c in subscription.conjunctions for p in c.predicates]
    return not any(isinstance(p, Comparison) and len(p.slots) > 1 for p in predicates)


# --- 2.3: conjunctions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["No Duplication", "No Creation", "Admission", "Conjunction Validity", "Conjunction Agreement"],
    ids=["lemma 1", "lemma 2", "lemma 3", "lemma 5", "lemma 6"],
)
def test_lemmas_1_2_3_5_6_frip_ensures(name: str) -> None:
    """Wilkin 2015, lemmas 1, 2, 3, 5 and 6, and with them most of theorem 2.3.1: they hold."""
    assert_kept(FRIP, name)


def test_lemma_4_message_non_triviality_holds_for_single_instances() -> None:
    """Wilkin 2015, lemma 4: it holds where every topic has one instance."""
    assert_kept(FRIP, "Event Validity", wanted=lambda s: one_conjunction(s) and single_instances(s))


def test_lemma_4_is_refuted_for_two_instances() -> None:
    """Wilkin 2015, lemma 4 and theorem 2.3.1: the second A0 is removed and never delivered."""
    assert shows("Event Validity", FRIP, "A0 A0", "A[1].a=0 and A[2].a=1", cycle="A1 A0")


# --- 2.4: covering --------------------------------------------------------------------------------


def test_theorem_2_4_1_is_refuted() -> None:
    """Wilkin 2015, theorem 2.4.1: FRIP does not ensure Covering Agreement."""
    assert shows("Covering Agreement", FRIP, "A2 B1 A1 B2 C", "A.a=B.a", "A.a=B.a and C")


def test_theorem_2_4_1_holds_without_binary_predicates() -> None:
    """Wilkin 2015, theorem 2.4.1: it holds for conjunctions without binary predicates."""
    assert_kept(
        FRIP, "Covering Agreement", wanted=lambda s: one_conjunction(s) and without_binary(s)
    )


def test_theorem_2_4_1_holds_when_staged() -> None:
    """Wilkin 2015, theorem 2.4.1: it holds under `staged`, as was wanted."""
    assert not shows("Covering Agreement", STAGED, "A2 B1 A1 B2 C", "A.a=B.a", "A.a=B.a and C")
    assert_kept(STAGED, "Covering Agreement")


# --- 2.5: disjunctions ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["No Duplication", "No Creation", "Admission", "Conjunction Validity"],
    ids=["lemma 12", "lemma 13", "lemma 14", "lemma 16"],
)
def test_lemmas_12_13_14_16_d_frip_ensures(name: str) -> None:
    """Wilkin 2015, lemmas 12, 13, 14 and 16, and with them most of theorem 2.5.1: they hold."""
    assert_kept(FRIP, name, wanted=disjunction)


def test_lemma_15_holds_for_single_instances_and_is_refuted_for_two() -> None:
    """Wilkin 2015, lemma 15: as lemma 4, on which its proof rests."""
    assert_kept(FRIP, "Event Validity", wanted=lambda s: disjunction(s) and single_instances(s))
    formula = "(A[1].a=0 and A[2].a=1) or B"
    assert shows("Event Validity", FRIP, "A0 A0", formula, cycle="A1 A0")


def test_lemma_17_is_refuted_with_theorem_2_4_1() -> None:
    """Wilkin 2015, lemma 17, and with it theorem 2.5.1: its proof rests on theorem 2.4.1."""
    assert shows("Covering Agreement", FRIP, "A2 B1 A1 B2 C", "A.a=B.a or B", "A.a=B.a and C or B")


# --- 2.6: total order -----------------------------------------------------------------------------


def test_theorem_2_6_1_type_total_order_holds_as_a_negated_crossing() -> None:
    """Wilkin 2015, theorem 2.6.1: it holds, read as "not (earlier here and later there)"."""
    assert_kept(FRIP, "Type Total Order")


def test_the_printed_type_total_order_fails_for_two_events_in_one_relation() -> None:
    """Wilkin 2015, 2.6.1: t_i < t'_i iff not t'_j < t_j fails where t_i = t'_i and t_j < t'_j."""
    scene = Scene(parse("p1: A[2]\np2: A"), stream("A A"))
    played = play(scene)
    assert played is not None
    assert not _printed_formula_holds(*played.run.asked)
    assert violated(scene, "Type Total Order") is None


def _printed_formula_holds(one: Asked, other: Asked) -> bool:
    common = [e for e in one.first if e in other.first]
    return all(
        (one.first[e].place < one.first[f].place)
        == (not other.first[f].place < other.first[e].place)
        for e, f in product(common, repeat=2)
        if e != f
    )


def test_theorem_2_6_2_conjunction_total_order() -> None:
    """Wilkin 2015, theorem 2.6.2: it holds."""
    assert_kept(FRIP, "Conjunction Total Order")


def test_theorem_2_6_3_type_total_order_of_disjunctions() -> None:
    """Wilkin 2015, theorem 2.6.3: it holds under the same reading as 2.6.1."""
    assert_kept(FRIP, "Type Total Order", wanted=disjunction)


def test_theorem_2_6_4_disjunction_total_order() -> None:
    """Wilkin 2015, theorem 2.6.4: it holds in canonical order, not in the order of the text."""
    assert_kept(FRIP, "Disjunction Total Order", wanted=disjunction)
    assert not shows("Disjunction Total Order", FRIP, "A1", "A or A.a=1", "A.a=1 or A")
    with pytest.MonkeyPatch.context() as patch:
        known("conjunctions take an event in the order of the text")(patch)
        assert shows("Disjunction Total Order", FRIP, "A1", "A or A.a=1", "A.a=1 or A")


def test_junction_total_order_is_infeasible() -> None:
    """Wilkin 2015, figure 2.5: T2 arrives before T1, and the extension by T3 turns them round."""
    shorter, longer = "A or B", "A and C or B and C"
    assert shows("Junction Total Order", FRIP, "B A C", shorter, longer)


# --- 2.7: FIFO and causal order -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["Type FIFO Order", "Type Local Order", "Type Causal Order"],
    ids=["theorem 2.7.1", "lemma 18", "theorem 2.7.2"],
)
def test_theorems_2_7_1_and_2_7_2_and_lemma_18(name: str) -> None:
    """Wilkin 2015, theorems 2.7.1 and 2.7.2 and lemma 18: they hold."""
    assert_kept(FRIP, name)


def test_theorem_2_7_1_needs_fifo_order_underneath() -> None:
    """Wilkin 2015, theorem 2.7.1: its premise is needed."""
    assert violated(stored_scene("order none", "Type FIFO Order"), "Type FIFO Order") is not None


@pytest.mark.parametrize("name", ["Conjunction FIFO Order", "Conjunction Local Order"])
def test_order_across_topics_is_not_ensured(name: str) -> None:
    """Wilkin 2015, 2.7: Conjunction FIFO and Local Order, by counterexample."""
    assert violated(stored_scene("any policy", name), name) is not None


def test_most_recent_matching_does_not_help() -> None:
    """Wilkin 2015, 2.7.1: Conjunction FIFO Order is lost with most recent matching as well."""
    assert shows("Conjunction FIFO Order", Policy(Match.RECENT), "B0 B1 A0 A1", "A.a=B.a")


def _discard_everything(patch: pytest.MonkeyPatch) -> None:
    """The second repair: a match empties every queue."""
    patch.setitem(consumption.REMAINING, Consume.PREFIX, lambda queue, matched: [])


def _respect_tags(patch: pytest.MonkeyPatch) -> None:
    """The first repair: no match may leave an event with a lower number of the same source."""

    def find(_: Any, part: Any, queues: Any, *, policy: Any, within_us: Any, pinned: Any) -> Any:
        slots = range(len(part.slots))
        for taken in product(*(queues[part.slots[i].topic] for i in slots)):
            bound: list[Any] = [None] * len(part.slots)
            for i in slots:
                if not matching.may_take(
                    part, i, taken[i], bound, contiguous=False, within_us=None
                ):
                    break
                bound[i] = taken[i]
            else:
                if _leaves_nothing_lower(part, queues, taken):
                    return list(taken)
        return None

    around(patch, engine, "find", find)


def _leaves_nothing_lower(part: Any, queues: Any, taken: Any) -> bool:
    last = {one.event.topic: one.number for one in taken}  # in slot order: the last instance stays
    left = [
        entry.event
        for topic in part.topics
        for entry in queues[topic]
        if entry.number > last[topic]
    ]
    return not any(
        one.source == mine.event.source and one.seq < mine.event.seq
        for one in left
        for mine in taken
    )


@pytest.mark.parametrize(
    ("repair", "names"),
    [
        (_respect_tags, ["Conjunction FIFO Order"]),
        (_discard_everything, ["Conjunction FIFO Order", "Conjunction Local Order"]),
    ],
    ids=["tags", "discard all"],
)
def test_the_two_repairs_of_section_2_7_work(repair: Any, names: list[str]) -> None:
    """Wilkin 2015, 2.7.1: matches that respect tags, or that empty every queue."""
    with pytest.MonkeyPatch.context() as patch:
        repair(patch)
        assert_kept(FRIP, *names)
