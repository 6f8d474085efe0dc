"""Wilkin 2015, algorithm 2.2 and lemmas 7 to 11: total order broadcast from conjunctions."""

from __future__ import annotations

import pytest

from concordant.errors import PeerError
from concordant.order.broadcast.from_conjunctions import Sent, TotalOrder
from tests.detection.conjunction_bugs import CONJUNCTION_BUGS, ConjunctionBug, planted
from tests.oracles.conjunction_broadcast import broken, drawn

RUNS = [drawn(seed).play() for seed in range(48)]


def test_lemmas_7_to_11_hold() -> None:
    assert [one for run in RUNS if (one := broken(run))] == []


@pytest.mark.parametrize("which", CONJUNCTION_BUGS, ids=lambda which: which.name)
def test_a_planted_bug_breaks_a_lemma(which: ConjunctionBug) -> None:
    with planted(which):
        assert broken(drawn(which.seed).play()).startswith(which.lemma)


def test_relations_did_come_in_different_orders() -> None:
    assert sum(run.reordered for run in RUNS) > 100
    assert sum(len(run.correct) < run.count for run in RUNS) > 10


def test_figure_2_3_a_relation_out_of_sequence_waits() -> None:
    names = ("p1", "p2", "p3")
    first = (Sent("p1", 1, {"m": "a"}), Sent("p2", 1, {"m": "b"}))
    second = (Sent("p2", 2, {"m": "c"}), Sent("p3", 1, {"m": "d"}))
    p1 = TotalOrder("p1", names)
    assert p1.relation(second) == []
    assert [one.content for one in p1.relation(first)] == [{"m": one} for one in "abcd"]


def test_only_one_message_of_a_process_is_under_correlation() -> None:
    process = TotalOrder("p1", ("p1", "p2", "p3"))
    process.broadcast({"m": 1})
    process.broadcast({"m": 2})
    assert process.next_sent() == Sent("p1", 1, {"m": 1})
    assert process.next_sent() is None
    process.relation((Sent("p1", 1, {"m": 1}), Sent("p2", 1)))
    assert process.next_sent() == Sent("p1", 2, {"m": 2})


def test_an_idle_process_keeps_company_only_when_it_is_wanted() -> None:
    process = TotalOrder("p1", ("p1", "p2", "p3"))
    assert process.next_sent() is None
    assert process.next_sent(wanted=True) == Sent("p1", 1)


def test_a_relation_of_no_majority_is_refused() -> None:
    process = TotalOrder("p1", ("p1", "p2", "p3"))
    for bad in ((Sent("p1", 1),), (Sent("p1", 1), Sent("p1", 2)), (Sent("p1", 1), Sent("x", 1))):
        with pytest.raises(PeerError):
            process.relation(bad)
    assert process == TotalOrder("p1", ("p1", "p2", "p3"))
