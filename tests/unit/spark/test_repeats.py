"""Ids that come again are found whatever the cut, and only within their window and partition."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from concordant.errors import UsageError
from concordant.language import parse
from concordant.language.check import check
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark.job import Job, make_job
from concordant.spark.repeats import Seen
from concordant.spark.rows import row_schema
from concordant.spark.step import Bucket, advance
from tests.buckets import pieces, summaries


def again(window_us: int, *events: tuple[str, int], seen: Seen | None = None) -> list[bool]:
    ids = pa.array([name for name, _ in events], pa.string())
    times = np.array([time for _, time in events], np.int64)
    found: list[bool] = (seen or Seen(window_us)).again(ids, times).tolist()
    return found


def test_an_id_is_known_until_it_was_not_there_for_the_whole_window() -> None:
    events = [("a", 0), ("b", 1), ("a", 10), ("a", 20), ("b", 12), ("a", 31)]
    assert again(10, *events) == [False, False, True, True, False, False]


def test_any_cut_finds_the_same() -> None:
    rng = Random(4)
    time = 0
    events = []
    for _ in range(300):
        time += rng.randrange(4)
        events.append((rng.choice("abcdefghij"), time))
    whole = again(9, *events)
    assert 0 < sum(whole) < len(whole)
    for _ in range(20):
        seen, found = Seen(9), []
        for piece in pieces(rng, len(events)):
            found += again(9, *events[piece], seen=seen)
            seen = Seen(9, seen.save())
        assert found == whole


def test_ids_are_known_before_1970_as_well() -> None:
    seen = Seen(10)
    assert again(10, ("a", -100), seen=seen) == [False]
    assert again(10, ("a", -95), ("b", -(2**63) + 1), seen=seen) == [True, False]


def test_where_times_go_back_any_cut_finds_the_same_too() -> None:
    assert again(10, ("a", 0), ("b", 1000), ("a", 1)) == [False, False, False]
    assert again(10, ("b", 1000), ("b", 5), ("a", 0), ("a", 1)) == [False] * 4
    rng = Random(5)
    events = [(rng.choice("abcdefghij"), n + rng.randrange(-20, 20)) for n in range(300)]
    whole = again(9, *events)
    assert 0 < sum(whole) < len(whole)
    for _ in range(50):
        seen, found = Seen(9), []
        for piece in pieces(rng, len(events)):
            found += again(9, *events[piece], seen=seen)
            seen = Seen(9, seen.save())
        assert found == whole


TOPICS = {"T": Topic("T", {"k": Kind.INT, "v": Kind.INT})}


def job_of(**options: Any) -> Job:
    wanted = check(parse("up: T[1].v < T[2].v consume matched partition by k"), TOPICS)
    return make_job(wanted, TOPICS, {}, **options)


def rows(job: Job, *events: tuple[str, int, int, int]) -> Any:
    """Events as (id, time, k, v); each has a number of its own."""
    return pa.Table.from_pylist(
        [
            {"set": 0, "topic": 0, "source": "s", "seq": n, "time": time, "id": name}
            | {"int:k": k, "int:v": v}
            for n, (name, time, k, v) in enumerate(events)
        ],
        row_schema(job),
    )


EVENTS = (("a", 1, 1, 5), ("a", 3, 1, 6), ("a", 4, 2, 6), ("b", 5, 1, 7))
"""`a` comes again in its partition, and once in another."""


def test_the_copy_is_set_aside_and_told() -> None:
    job = job_of(unique_us=10, skip_bad=True)
    bucket = Bucket(job)
    answers = advance(bucket, rows(job, *EVENTS), until_us=10)
    assert [one[-1] for one in summaries(answers)] == [("a", "b")]
    told = [row for row in answers.to_pylist() if row["what"] == "repeated"]
    assert [row["events"][0]["seq"] for row in told] == [1]
    assert "the same id" in told[0]["reason"]
    assert bucket.told(bucket.save())["repeated"] == 1


def test_it_is_remembered_over_micro_batches() -> None:
    job = job_of(unique_us=10, skip_bad=True)
    bucket = Bucket(job)
    advance(bucket, rows(job, EVENTS[0]), until_us=2)
    after = Bucket(job, bucket.save())
    advance(after, rows(job, *EVENTS).slice(1), until_us=10)
    assert after.told(after.save())["repeated"] == 1


def test_it_ends_the_run_where_nothing_is_skipped() -> None:
    job = job_of(unique_us=10)
    with pytest.raises(UsageError, match="an event with the same id was there shortly before"):
        advance(Bucket(job), rows(job, *EVENTS), until_us=10)


def test_nobody_compares_ids_unless_asked() -> None:
    job = job_of()
    bucket = Bucket(job)
    advance(bucket, rows(job, *EVENTS), until_us=10)
    assert bucket.told(bucket.save())["events"] == len(EVENTS)


KINDS = {"s": Kind.STRING, "t": Kind.STRING, "x": Kind.FLOAT, "b": Kind.BOOL, "at": Kind.TIME}


@pytest.mark.parametrize(
    ("key", "left", "right", "again"),
    [
        ("source", {"source": "p"}, {"source": "q"}, False),
        ("seq", {}, {}, False),
        ("time", {"time": 1}, {"time": 2}, False),
        ("time", {}, {}, True),
        ("s", {"s": None}, {"s": ""}, False),
        ("s", {"s": None}, {"s": "-"}, False),
        ("s", {"s": None}, {"s": None}, True),
        ("s, t", {"s": "a", "t": "1:b"}, {"s": "a1:", "t": "b"}, False),
        ("s, t", {"s": "a\x1f", "t": "b"}, {"s": "a", "t": "\x1fb"}, False),
        ("s, t", {"s": None, "t": "a"}, {"s": "a", "t": None}, False),
        ("s, t", {"s": "ä", "t": "b"}, {"s": "ä", "t": "b"}, True),
        ("x", {"x": float("nan")}, {"x": None}, True),
        ("x", {"x": 0.0}, {"x": -0.0}, True),
        ("x", {"x": 0.0}, {"x": None}, False),
        ("b", {"b": False}, {"b": None}, False),
        ("b", {"b": False}, {"b": False}, True),
        ("at", {"at": 0}, {"at": None}, False),
        ("at", {"at": 2**62}, {"at": 2**62}, True),
    ],
    ids=str,
)
def test_ids_are_compared_in_a_partition(
    key: str, left: dict[str, Any], right: dict[str, Any], again: bool
) -> None:
    topics = {"T": Topic("T", KINDS)}
    wanted = check(parse(f"T[1].seq < T[2].seq partition by {key}"), topics)
    job = make_job(wanted, topics, {}, unique_us=10, skip_bad=True)
    assert job.sets[0].key == tuple(key.split(", "))
    rows = [
        {"set": 0, "topic": 0, "source": "p", "seq": number, "time": 1, "id": "same"}
        | {f"{KINDS[name]}:{name}" if name in KINDS else name: one for name, one in values.items()}
        for number, values in enumerate((left, right))
    ]
    bucket = Bucket(job)
    advance(bucket, pa.Table.from_pylist(rows, row_schema(job)), until_us=10)
    assert bucket.counts["repeated"] == again
