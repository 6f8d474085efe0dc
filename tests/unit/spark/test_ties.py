"""Of rows with one place the same is kept, however rows are shuffled, cut, filtered and spread."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from concordant.errors import UsageError
from concordant.language import parse
from concordant.language.check import check
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark.job import make_job
from concordant.spark.step import Bucket, advance
from tests.ties import QUESTION, WAYS, Row, Way, got, job_of, make_small, table_of, tried

CASE_COUNT = 16
CUT_COUNT = 2


@pytest.mark.parametrize("way", WAYS)
def test_what_rows_say_decides_which_of_one_place_is_kept(
    way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_small(monkeypatch)
    delivered = told = 0
    for seed in range(CASE_COUNT):
        job, rows, *right = tried(seed, way)
        assert [one.key for one in job.sets] == [("k",), ("s",), ()]
        for cut in range(CUT_COUNT):
            assert got(way(job, rows, Random(f"{seed}/{cut}"))) == tuple(right), (seed, cut)
        delivered += len(right[0])
        told += right[1].total()
    assert delivered > 80
    assert told > 200


def row(**values: Any) -> Row:
    nothing = dict.fromkeys(("id", "k", "s", "x", "f"))
    return {"topic": "A", "source": "p", "seq": 1, "time": 5, **nothing, **values}


def told_by(rows: list[tuple[int, Row]], question: str = QUESTION) -> dict[str, int]:
    job = job_of(question)
    return dict(got([Bucket(job).take(table_of(job, rows))])[1])


def test_a_row_that_is_no_event_is_told_by_one_set() -> None:
    for bad in (row(time=None), row(topic=None), row(k=-(2**63)), row(seq=None)):
        assert sum(told_by([(0, bad), (1, bad)]).values()) == 1
    assert told_by([(2, row(topic="B", source=None))]) == {}  # the first set tells it elsewhere


@pytest.mark.parametrize("name", ["k", "seq", "time"])
def test_an_integer_beyond_the_symmetric_range_makes_no_event(name: str) -> None:
    bucket = Bucket(job_of("A partition by k"))
    bucket.take(table_of(bucket.job, [(0, row(**{name: -(2**63)})), (0, row(**{name: 1 - 2**63}))]))
    assert (bucket.counts["bad"], bucket.counts["events"]) == (1, 1)


def test_an_exact_copy_is_told_by_the_first_set_that_can_use_it() -> None:
    copy = row(x=1.0, s="x")
    both = [(0, copy), (0, copy), (1, copy), (1, copy)]
    assert list(told_by(both).values()) == [1]
    second = row(x=0.5, s="x")  # too small for the first set
    assert list(told_by([(1, second), (1, second)]).values()) == [1]


def test_a_row_is_told_by_every_set_in_which_another_is_kept() -> None:
    one, other = row(x=1.0, s="x", k=1), row(x=1.0, s="x", k=2)
    assert told_by([(0, one), (0, other)]) == {}  # they are apart there
    assert list(told_by([(1, one), (1, other)]).values()) == [1]


def test_late_events_are_told_by_the_first_set_that_can_use_them() -> None:
    job = job_of()
    bucket = Bucket(job)
    advance(bucket, table_of(job, []), until_us=10)
    first, second, none = row(x=1.0), row(x=0.5, seq=2), row(x=1.0, seq=3, k=-(2**63))
    rows = [(0, first), (1, first), (1, second), (0, none), (1, none)]
    told = got([advance(bucket, table_of(job, rows), until_us=10)])[1]
    assert dict(told) == {
        "('late', 'A', 'p', 1, 5)": 1,
        "('late', 'A', 'p', 2, 5)": 1,
        "('bad', 'A', 'p', 3, 5)": 1,
    }
    assert bucket.counts["late"] == 2


@pytest.mark.parametrize(
    ("left", "right", "kept"),
    [(math.nan, None, 1), (0.0, -0.0, 1), (1.0, None, 2), (1.0, 2.0, 2)],
    ids=str,
)
def test_partitions_of_numbers_are_those_of_the_kernel(
    left: float | None, right: float | None, kept: int
) -> None:
    job = job_of("A[1].seq < A[2].seq partition by x")
    bucket = Bucket(job)
    bucket.take(table_of(job, [(0, row(x=left)), (0, row(x=right))]))
    assert bucket.counts["events"] == kept


def test_what_else_is_shown_does_not_change_what_is_kept() -> None:
    topics = {"A": Topic("A", {"a": Kind.INT, "z": Kind.INT})}
    wanted = check(parse("A[1].z < A[2].z"), topics)
    for attributes in ("*", None):
        job = make_job(wanted, topics, {}, attributes=attributes, skip_bad=True)
        rows = [row(seq=seq, time=seq, a=a, z=z) for seq, a, z in ((1, 2, 1), (1, 1, 9), (2, 5, 5))]
        relations, _ = got([Bucket(job).take(table_of(job, [(0, one) for one in rows]))])
        assert len(relations) == 1  # 1 < 5, of the row whose z is least


def test_a_row_that_another_is_kept_for_ends_the_run_where_nothing_is_skipped() -> None:
    wanted = check(parse("A[1].x < A[2].x"), {"A": Topic("A", {"x": Kind.FLOAT})})
    job = make_job(wanted, {"A": Topic("A", {"x": Kind.FLOAT})}, {})
    with pytest.raises(UsageError, match="another event has the same time, source and seq"):
        Bucket(job).take(table_of(job, [(0, row(x=1.0)), (0, row(x=2.0))]))
