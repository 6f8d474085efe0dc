"""Wilkin 2015, chapter 4: theorems 1 to 10, table 4.1, and the operators of tables 4.2 and 4.3."""

from __future__ import annotations

import pytest

from concordant.guarantees.table import lost_by_policy, lost_in_the_thesis
from concordant.model.subscription import POLICIES, Consume, Match, Policy
from tests.papers.claims import shows

FR, MR = Match.FIRST, Match.RECENT
I, PI, IP, FP = Consume.MATCHED, Consume.PREFIX, Consume.SUFFIX, Consume.SLIDE  # noqa: E741


def policy(match: Match, consume: Consume, *, contiguous: bool = False) -> Policy:
    return Policy(match, contiguous, False, consume)


def test_theorem_1_recent_violates_event_validity() -> None:
    """Wilkin 2015, theorem 1: an early A is buried; it holds for every disposal."""
    for consume in Consume:
        formula = "A.a=1 and B.a<C.a"
        assert shows("Event Validity", policy(MR, consume), "A1", formula, cycle="A1 B1 C2"), (
            consume
        )


def test_theorem_2_recent_violates_covering_agreement() -> None:
    """Wilkin 2015, theorem 2, with its own events; it holds for every disposal."""
    for consume in Consume:
        shorter, longer = "A.a<B.a", "A.a<B.a and C.a<5"
        assert shows("Covering Agreement", policy(MR, consume), "A1 B2 B3 C1", shorter, longer)


@pytest.mark.parametrize("consume", [I, IP, FP])
def test_theorems_3_and_4_recent_without_prefix_violates_fifo(consume: Consume) -> None:
    """Wilkin 2015, theorems 3 and 4: they hold; under FP with two instances."""
    events, formula = ("A A B B", "A and B") if consume is not FP else ("A0 A1 A0 A1", PAIRS)
    for name in ("Type FIFO Order", "Type Causal Order"):
        assert shows(name, policy(MR, consume), events, formula)


PAIRS = "A[1].a=A[2].a"


def test_theorems_3_and_4_are_refuted_for_contiguous_sliding_windows() -> None:
    """Wilkin 2015, table 4.1, MRC with FP lists FIFO and Causal as lost: they are not."""
    cell = policy(MR, FP, contiguous=True)
    assert {"Type FIFO Order", "Type Causal Order"} <= {*lost_in_the_thesis(cell)}
    assert not {"Type FIFO Order", "Type Causal Order"} & {*lost_by_policy(cell)}


def test_theorem_5_contiguous_violates_both_validities() -> None:
    """Wilkin 2015, theorem 5: values alternate, so that no two neighbours are equal."""
    for match in Match:
        for consume in Consume:
            alternating = policy(match, consume, contiguous=True)
            formula = "A[1].a=1 and A[2].a=1"
            assert shows("Conjunction Validity", alternating, "", formula, cycle="A1 A0")
            assert shows("Event Validity", alternating, "A1", formula, cycle="A0 A1")


def test_theorem_6_infix_violates_the_orders_of_a_type() -> None:
    """Wilkin 2015, theorem 6, with its own events (T3 first: no topic order is meant)."""
    for match in Match:
        events = "A3 C1 A2 C1 B3 B4"
        two = ("A.a<B.a", "A.a>C.a")
        assert shows("Type Total Order", policy(match, I), "A3 C2 A2 C1 B3 B4", *two) or shows(
            "Type Total Order", policy(match, I), events, *two
        )
        for name in ("Type FIFO Order", "Type Causal Order"):
            assert shows(name, policy(match, I), events, "A.a<B.a")


def test_theorem_7_first_with_postfix_violates_event_validity() -> None:
    """Wilkin 2015, theorem 7: the second A is discarded behind the first."""
    assert shows("Event Validity", policy(FR, IP), "A1 A1", "A.a<3 and B.a<1", cycle="B0 A1")


def test_theorem_8_first_with_postfix_violates_covering_agreement() -> None:
    """Wilkin 2015, theorem 8: Covering is lost, but not by the events of its proof.

    There the longer subscription delivers less than the shorter one, which Covering allows; it is
    lost because the longer one delivers a relation that the shorter one never does.
    """
    shorter, longer = "A.a<B.a", "A.a<B.a and C.a<5"
    assert not shows("Covering Agreement", policy(FR, IP), "A1 B2 A3 B4 C1", shorter, longer)
    assert "Covering Agreement" in lost_by_policy(policy(FR, IP))


def test_theorem_9_sliding_windows_violate_no_duplication() -> None:
    """Wilkin 2015, theorem 9, with its own events; contiguous or not."""
    for match in Match:
        for contiguous in (False, True):
            sliding = policy(match, FP, contiguous=contiguous)
            assert shows("No Duplication", sliding, "A1 A2 A3", "A[1].a<A[2].a")


def test_no_duplication_in_a_slot_is_refuted_for_sliding_windows() -> None:
    """Wilkin 2015, 4.3.4: sliding windows keep No Duplication′ only if contiguous."""
    assert shows("No Duplication′", policy(FR, FP), "A0 A0 A1 A0", "A[2].a=1")
    assert shows("No Duplication′", policy(MR, FP), "B2 B1 B0 A1 A0", "B[2] and B[1].a>A.a")
    for match in Match:
        assert "No Duplication′" not in lost_by_policy(policy(match, FP, contiguous=True))


def test_theorem_10_sliding_windows_violate_fifo_and_causal_order() -> None:
    """Wilkin 2015, theorem 10, with its own events; and Type Total Order, as its text says."""
    for match in Match:
        for name in ("Type FIFO Order", "Type Causal Order"):
            assert shows(name, policy(match, FP), "A0 A1 A0 A1", PAIRS)
        assert shows("Type Total Order", policy(match, FP), "A0 A1 A0 A1", PAIRS, "A")


# --- tables ---------------------------------------------------------------------------------------

NOT_LOST = {policy(MR, FP, contiguous=True): {"Type FIFO Order", "Type Causal Order"}}
"""What table 4.1 lists as lost and is not."""


@pytest.mark.parametrize("cell", POLICIES, ids=str)
def test_table_4_1_claims_no_loss_that_is_none(cell: Policy) -> None:
    """Wilkin 2015, table 4.1: what it lists is lost, but for one cell."""
    extra = {*lost_in_the_thesis(cell)} - {*lost_by_policy(cell)}
    assert extra == NOT_LOST.get(cell, set())


def test_table_4_1_differs_in_most_cells() -> None:
    """Wilkin 2015, table 4.1: Type Local Order apart, which it leaves out, most cells differ."""
    differing = [
        cell
        for cell in POLICIES
        if {*lost_by_policy(cell)} - {"Type Local Order"} != {*lost_in_the_thesis(cell)}
    ]
    agreeing = [cell for cell in POLICIES if cell not in differing]
    assert len(differing) == 14
    assert agreeing == [policy(MR, PI), policy(MR, PI, contiguous=True)]


OPERATORS = [
    # language, operator, policy, what tables 4.2 and 4.3 say that it loses
    ("TESLA", "each-within", policy(FR, I), {"Type Total Order", "Type FIFO Order"}),
    ("TESLA", "first-within", policy(FR, PI), {"Event Validity", "Covering Agreement"}),
    ("TESLA", "last-within", policy(MR, PI), {"Event Validity", "Covering Agreement"}),
    ("TESLA", "consuming", policy(FR, I), {"Type Total Order", "Type FIFO Order"}),
    ("StreamSQL", "select", policy(FR, I), {"Type Total Order", "Type FIFO Order"}),
    ("StreamSQL", "create window", policy(FR, FP), {"Covering Agreement", "Type FIFO Order"}),
    ("EQL", "select", policy(FR, I), {"Type Total Order", "Type FIFO Order"}),
    ("EQL", "create window", policy(FR, FP), {"Covering Agreement", "Type FIFO Order"}),
    ("CEL", "select", policy(FR, I), {"Type Total Order", "Type FIFO Order"}),
]


@pytest.mark.parametrize(("language", "operator", "cell", "claimed"), OPERATORS)
def test_tables_4_2_and_4_3_of_operators_with_a_policy_of_ours(
    language: str, operator: str, cell: Policy, claimed: set[str]
) -> None:
    """Wilkin 2015, tables 4.2 and 4.3: what the operator is said to lose, its policy loses."""
    assert claimed | ({"Type Causal Order"} if "Type FIFO Order" in claimed else set()) <= {
        *lost_by_policy(cell)
    }
