"""Subscriptions as words: strings as codes, columns shared, and layouts that fit."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from concordant.correlate.compiled import layout as at
from concordant.correlate.plan import compile_plan
from concordant.correlate.program import Program, compile_program
from concordant.correlate.writer import Dictionary
from concordant.model.expression import Arithmetic, Constant
from concordant.model.kind import Kind
from concordant.model.predicate import Comparison
from concordant.model.subscription import Subscription
from concordant.model.topic import schemas
from tests.detection.kernel_bugs import binaries, parts, slots, subscriptions, unaries
from tests.examples import A2, TOPICS, A, B, C, attribute, both, compare, policy, then


def program_of(*asked: Subscription, time_ordered: bool = True) -> Program:
    plan = compile_plan(asked, schemas(TOPICS))
    return compile_program(
        plan.subscriptions,
        plan.schemas,
        Dictionary(),
        time_ordered=time_ordered,
        budget=7,
        scanned=64,
    )


# --- strings --------------------------------------------------------------------------------------


def test_a_string_has_one_code_for_good() -> None:
    dictionary = Dictionary(["b", "a"])
    assert [dictionary.code(text) for text in ("a", "c", "b", "c")] == [1, 2, 0, 2]
    assert list(dictionary.codes) == ["b", "a", "c"]
    assert Dictionary(dictionary.codes).codes == dictionary.codes


def test_ranks_order_codes_by_code_points() -> None:
    texts = ["é", "z", "", "\U0001f600", "\ue000", "Z"]
    ranks = Dictionary(texts).ranks()
    assert [texts[code] for code in np.argsort(ranks)] == sorted(texts)
    assert len(Dictionary().ranks()) == 1  # the loops are given an address


def test_only_a_comparison_by_order_needs_ranks() -> None:
    def asked(op: str) -> Subscription:
        return Subscription("S", (both(Comparison(op, attribute(A, "k"), attribute(B, "k"))),))

    assert program_of(asked("<")).ranked
    assert not program_of(asked("=")).ranked


# --- words ----------------------------------------------------------------------------------------


def test_a_binary_predicate_is_written_for_both_slots_and_turned_for_the_other() -> None:
    words = program_of(Subscription("S", (both(compare(A, "<", B)),))).words
    mine, theirs = binaries(words)
    assert words[mine + at.BINARY_OP] == at.OP_LT
    assert words[theirs + at.BINARY_OP] == at.OP_GT
    assert words[mine + at.BINARY_MINE] == words[theirs + at.BINARY_THEIRS]


def test_order_of_positions_is_monotone_and_order_of_times_only_in_ordered_input() -> None:
    by_time = both(Comparison("<", attribute(A, "time"), attribute(B, "time")))

    def monotone(asked: Subscription, time_ordered: bool) -> list[int]:
        words = program_of(asked, time_ordered=time_ordered).words
        return [int(words[record + at.BINARY_MONOTONE]) for record in binaries(words)]

    for ordered in (False, True):
        assert monotone(Subscription("S", (both(then(A, B)),)), ordered) == [1, 1]
        assert monotone(Subscription("S", (by_time,)), ordered) == [int(ordered)] * 2


def test_order_constraints_stand_along_themselves() -> None:
    words = program_of(Subscription("S", (both(then(B, A), then(C, B)),))).words
    ((_, _, part),) = parts(words)
    start, count = words[part + at.PART_BEFORE], words[part + at.PART_BEFORE_COUNT]
    records = [words[start + i * at.BEFORE_SIZE :] for i in range(count)]
    steps = [(int(one[at.BEFORE_SLOT]), int(one[at.BEFORE_LATER])) for one in records]
    assert steps == [(2, 1), (1, 0)]
    assert words[part + at.PART_ACYCLIC]


def test_equal_times_are_order_constraints_in_a_circle() -> None:
    same = Comparison("=", attribute(A, "time"), attribute(B, "time"))
    words = program_of(Subscription("S", (both(same),))).words
    ((_, _, part),) = parts(words)
    assert words[part + at.PART_BEFORE_COUNT] == 2
    assert not words[part + at.PART_ACYCLIC]


def test_equal_expressions_share_a_column() -> None:
    doubled = Arithmetic("*", attribute(A), Constant(2, Kind.INT))
    asked = [
        Subscription(name, (both(Comparison(op, doubled, attribute(B))),))
        for name, op in (("S", "<"), ("T", ">"))
    ]
    one, two = program_of(asked[0]), program_of(*asked)
    assert two.column_count == one.column_count
    assert two.words[at.PLAN_DERIVED_COUNT] == 1


def test_a_predicate_on_one_event_with_a_constant_needs_no_column_of_its_own() -> None:
    program = program_of(Subscription("S", (both(compare(A, ">", 3)),)))
    (record,) = unaries(program.words)
    assert program.words[record + at.UNARY_COLUMN] == program.inputs["a", Kind.INT]
    assert program.words[record + at.UNARY_VALUE] == 3
    assert program.words[at.PLAN_DERIVED_COUNT] == 0


@pytest.mark.parametrize(
    ("words", "expected"), [("", [0, 1, 2]), ("recent", [1, 0, 2])], ids=["first", "recent"]
)
def test_instances_are_visited_in_the_order_of_the_policy(words: str, expected: list[int]) -> None:
    found = program_of(Subscription("S", (both(A2, B),), policy(words))).words
    ((_, _, part),) = parts(found)
    start = found[part + at.PART_VISIT]
    assert found[start : start + 3].tolist() == expected


def test_a_staged_conjunction_has_a_part_per_connected_topics() -> None:
    words = program_of(Subscription("S", (both(A, B),), policy("staged"))).words
    assert [int(words[part + at.PART_SLOT_COUNT]) for _, _, part in parts(words)] == [1, 1]
    assert all(words[part + at.PART_FINISHED] >= 0 for _, _, part in parts(words))
    assert len(list(slots(words))) == 2


def test_only_an_explicit_cap_on_all_events_keeps_a_line_from_the_start() -> None:
    free, capped = Subscription("S", (both(A),)), Subscription("T", (both(A),), queued_count_max=9)
    program = program_of(free, capped)
    assert program.lined == program.roots[1:]
    limits = [int(program.words[s + at.SUB_QUEUED_MAX]) for s in subscriptions(program.words)]
    assert limits == [free.queued_count_max, 9]


def test_bounds_that_were_not_asked_for_are_minus_one() -> None:
    words = program_of(Subscription("S", (both(A),))).words
    (subscription,) = subscriptions(words)
    for field in (at.SUB_WITHIN, at.SUB_QUEUE_MAX, at.SUB_CONTIGUOUS):
        assert words[subscription + field] == -1


def test_roots_of_subscriptions_do_not_overlap() -> None:
    asked = [
        Subscription(f"S{i}", (both(A),), policy("contiguous"), partition_by=("k",) * (i % 2))
        for i in range(4)
    ]
    program = program_of(*asked)
    roots = sorted(program.roots)
    assert all(two - one >= at.ROOT_SIZE for one, two in pairwise(roots))
    assert program.root_end >= roots[-1] + at.ROOT_SIZE
    assert roots[0] >= at.ARENA_ROOT
