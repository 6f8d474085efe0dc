"""Rows of one bucket through the core, with its state as bytes in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from concordant.errors import UsageError
from concordant.language import parse
from concordant.language.check import check
from concordant.local import correlate as local
from concordant.model.event import Event
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark.job import Job, make_job
from concordant.spark.rows import row_schema
from concordant.spark.state import unseal
from concordant.spark.step import Bucket, advance, step
from tests.buckets import rows_of, summaries

TOPICS = {name: Topic(name, {"k": Kind.INT}) for name in "ABT"}


def job_of(text: str, *, generations: Sequence[Sequence[str]] | None = None, **options: Any) -> Job:
    found = check(parse(text), TOPICS)
    return make_job(found, TOPICS, {}, generations=generations, **options)


def rows(job: Job, events: Sequence[Event]) -> Any:
    """Each event once for every set that reads its topic."""
    sets = list(enumerate(job.sets))
    return rows_of(
        job, [(n, one) for one in events for n, each in sets if one.topic in each.topics]
    )


def expected(text: str, events: Sequence[Event]) -> list[tuple[str, ...]]:
    plain = [
        {"topic": e.topic, "source": e.source, "seq": e.seq, "time": e.time, **e.attributes}
        for e in events
    ]
    return sorted((one.id, *one.event_ids) for one in local(plain, text))


def found(*answers: Any) -> list[tuple[str, ...]]:
    return sorted((one[0], *one[-1]) for each in answers for one in summaries(each))


def test_a_log_s_event_that_several_sets_can_use_is_no_repetition() -> None:
    text = "p: A then B partition by k\nq: B[1].k < B[2].k"
    events = [Event("AB"[n % 3 % 2], "s", n, n, {"k": n % 4}) for n in range(12)]
    job = job_of(text, time_ordered=False)
    assert len(job.sets) == 2
    state, first = step(job, None, rows(job, events[:7]))
    _, second = step(job, state, rows(job, events[5:]))
    assert found(first, second) == expected(text, events) != []
    whats = [*first.column("what").to_pylist(), *second.column("what").to_pylist()]
    assert whats.count("repeated") == rows(job, events[5:7]).num_rows


def test_held_rows_keep_their_topics_when_an_earlier_one_joins_them() -> None:
    text = "old: B then T"
    events = [Event("BT"[n % 2], "s", n, n, {"k": n}) for n in range(6)]
    before = job_of(text)
    state, first = step(before, None, rows(before, events), until_us=1)
    after = job_of(f"{text}\nnew: A then B", generations=[["old"], ["new"]])
    assert [one.name for one in after.topics] == ["A", "B", "T"]
    late = Event("T", "s", 9, 9, {"k": 9})
    _, second = step(after, state, rows(after, [late]))
    assert found(first, second) == expected(text, [*events, late]) != []


def test_attributes_that_come_new_are_null_in_rows_and_queues_from_before() -> None:
    text = "old: A then B"
    events = [Event("AB"[n // 3], "s", n, n, {"k": n}) for n in range(6)]
    before = job_of(text)
    assert before.columns == ()
    state, first = step(before, None, rows(before, events[:4]), until_us=2)
    after = job_of(text, attributes="*")
    _, second = step(after, state, rows(after, events[4:]))
    assert found(first, second) == expected(text, events) != []


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("old: B then A", {}),
        ("old: A then T", {}),
        ("old: A then B partition by k", {}),
        ("other: A then B\nold: A then B", {"generations": [["other"], ["old"]]}),
        ("old: A then B", {"time_ordered": False}),
        ("old: A then B", {"unique_us": 1}),
    ],
)
def test_a_state_is_opened_under_no_other_question(text: str, options: Any) -> None:
    before = job_of("old: A then B")
    state, _ = step(before, None, rows(before, [Event("A", "s", 1, 1, {"k": 1})]))
    after = job_of(text, **options)
    with pytest.raises(UsageError, match="begun with another question"):
        step(after, state, rows(after, []))


def test_a_state_is_opened_under_a_question_to_which_others_came() -> None:
    before = job_of("old: A then B")
    state, _ = step(before, None, rows(before, [Event("A", "s", 1, 1, {"k": 1})]))
    after = job_of("old: A then B\nnew: T", generations=[["old"], ["new"]])
    step(after, state, rows(after, []))


@pytest.mark.parametrize("name", ["source", "seq", "time"])
def test_a_row_without_its_place_is_told_at_once_and_waits_for_nobody(name: str) -> None:
    job = job_of("old: A then B", skip_bad=True)
    row = rows(job, [Event("A", "s", 1, 900, {"k": 1})]).to_pylist()[0] | {name: None}
    state, answers = step(job, None, pa.Table.from_pylist([row], row_schema(job)), until_us=5)
    assert answers.column("what").to_pylist() == ["bad"]
    assert unseal(state).held_count == 0


def test_a_log_s_numbers_and_its_source_count_in_all_buckets() -> None:
    job = job_of("old: A then B", time_ordered=False, skip_bad=True)
    first = rows(job, [Event("A", "s", 3, 3, {"k": 1})])
    again = rows(job, [Event("A", "s", 7, 7, {"k": 1}), Event("B", "s", 9, 9, {"k": 1})])
    bucket = Bucket(job)
    advance(bucket, first, until_us=0, marks={"s": 8})  # 8 is in another bucket
    answers = advance(bucket, again, until_us=0, marks={"s": 9})
    assert answers.column("what").to_pylist() == [None, "repeated"]
    for table in (first, first.slice(0, 0)):
        with pytest.raises(UsageError, match="there are 's' and 't'"):
            advance(Bucket(job), table, until_us=0, marks={"s": 3, "t": 1})
