"""Baldoni 2015, supplement: the counterexamples to the published algorithm, run on ours.

Each case breaks the published point that it is named after; here every schedule of it is clean, at
both promises. The broken variants themselves are in `tests/detection/sequencing_bugs.py`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sequencing_cases import Case, clean, play, strict

SCHEDULE_COUNT = 40

COUNTEREXAMPLES = {
    "isNext: entries of topics that are not held": Case(("12", "12", "2"), "12"),
    "figure 3 l.14: the clock is set to the old value": Case(("1", "1"), "11"),
    "Lemma 1: two routes that share two sequencers": Case(("134", "134", "23", "23"), "431"),
    "Lemma 2: a circle of four topics": Case(("1234", "12", "23", "34", "14"), "4321"),
    "figure 4 l.09: events in flight while subscribing": Case(("12", "2"), "2", ((1, "+1"),)),
    "figure 3 l.02: bystanders of a subscription": Case(("13", "13", "1"), "13", ((2, "+2"),)),
    "Theorem 1: to unsubscribe cannot hurt": Case(("12", "12"), "12", ((1, "-1"),)),
}


@pytest.mark.parametrize("name", COUNTEREXAMPLES)
def test_the_counterexample_to(name: str) -> None:
    case = COUNTEREXAMPLES[name]
    clean(case, SCHEDULE_COUNT)
    clean(strict(case), SCHEDULE_COUNT)


def test_subscribers_of_the_same_topics_see_the_same_sequence() -> None:
    # The property itself (total notification order), looked at without a checker.
    for seed in range(20):
        played = play(Case(("1234", "1234", "1234"), "4321" * 3, latency_ms=60), seed)
        sequences = [played.delivered(f"s{number}") for number in range(3)]
        assert sequences[0] == sequences[1] == sequences[2]
        assert len(sequences[0]) == 12


def test_a_publisher_that_dies_leaves_no_hole() -> None:
    # Published, an event that was numbered and never came blocked everybody.
    case = Case(("12", "12"), "1212", crashes=("p1", "p2"), latency_ms=10)
    clean(case, SCHEDULE_COUNT)
    gone = replace(case, forever=True)
    for seed in range(SCHEDULE_COUNT):
        played = play(gone, seed)
        assert played.failure is None
        assert played.delivered("s0") == played.delivered("s1")


def test_sequencers_that_die_and_come_back_lose_and_repeat_nothing() -> None:
    case = Case(("12", "12", "23"), "123123", crashes=("sequencer-1", "sequencer-2"))
    clean(case, SCHEDULE_COUNT)
    clean(strict(case), SCHEDULE_COUNT)
