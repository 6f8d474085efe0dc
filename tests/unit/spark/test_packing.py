"""Rows packed for their buckets: each arrives once, where it belongs; marks reach all buckets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from concordant.language import parse
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark import packing as module
from concordant.spark.job import Job, make_job
from concordant.spark.packing import BUCKET, all_unpacked, packing, placed_schema, read_marks
from concordant.spark.rows import MARK

BUCKETS = 5
TOPICS = {name: Topic(name, {"key": Kind.INT, "text": Kind.STRING}) for name in ("A", "B")}


@pytest.fixture
def job() -> Job:
    return make_job(parse('A then B and A.text = "x" partition by key'), TOPICS, {})


def placed(job: Job, seed: int, *, count: int, sources: list[str | None]) -> Any:
    """Rows at random: some columns say the same all the way, some are null here and there."""
    random = Random(seed)
    same = random.choice([None, "x"])
    rows = [
        {
            BUCKET: random.randrange(BUCKETS - 1),  # the last one gets none
            "set": 0,
            "topic": random.choice([0, 1, MARK, None]),
            "source": random.choice(sources),
            "seq": number,
            "time": random.choice([None, random.randrange(1_000)]),
            "id": None,
            "int:key": random.randrange(3),
            "string:text": same if seed % 2 else random.choice([None, "x", "y"]),
        }
        for number in range(count)
    ]
    return pa.Table.from_pylist(rows, placed_schema(job))


def sent(job: Job, table: Any) -> Iterator[tuple[int, Any, Any]]:
    for batch in packing(job.packed, BUCKETS)(table.to_batches(max_chunksize=7)):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sources", [["a"], ["a", "b"], ["a", None], [None]], ids=str)
def test_every_event_arrives_once_in_its_bucket_and_in_its_order(
    job: Job, seed: int, sources: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GROUP", 20)
    table = placed(job, seed, count=50, sources=sources)
    blobs: dict[int, list[bytes]] = {}
    for bucket, blob, _ in sent(job, table):
        if blob is not None:
            blobs.setdefault(bucket, []).append(blob)
    rows = [row for row in table.to_pylist() if row["topic"] != MARK]
    for bucket in range(BUCKETS):
        mine = [row for row in rows if row[BUCKET] == bucket]
        for row in mine:
            del row[BUCKET]
        rows = [row for row in rows if BUCKET in row]
        assert all_unpacked(job, blobs.get(bucket, [])).to_pylist() == mine


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sources", [["a"], ["a", "b", "c"], ["a", None], [None]], ids=str)
def test_every_bucket_hears_how_far_every_source_has_come(
    job: Job, seed: int, sources: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "GROUP", 20)
    table = placed(job, seed, count=50, sources=sources)
    expected: dict[str, int] = {"before": 7}
    for row in table.to_pylist():
        if row["source"] is not None and row["time"] is not None:
            expected[row["source"]] = max(row["time"], expected.get(row["source"], -1))
    told: dict[int, list[bytes]] = {bucket: [] for bucket in range(BUCKETS)}
    for bucket, _, marks in sent(job, table):
        told[bucket].append(marks)
    for marks in told.values():
        assert read_marks(marks, {"before": 7}) == expected


def test_every_bucket_hears_the_last_number_of_a_log_and_nothing_of_who_marks_progress(
    job: Job,
) -> None:
    log = replace(job, time_ordered=False)
    table = placed(log, 1, count=50, sources=["a"])
    mark = table.slice(0, 1).to_pylist()[0] | {"topic": MARK, "source": "beside", "seq": 99}
    table = pa.concat_tables([table, pa.Table.from_pylist([mark], table.schema)])
    last = max(row["seq"] for row in table.to_pylist() if row["topic"] != MARK)
    told = [marks for _, _, marks in sent(log, table) if marks is not None]
    assert len(told) == BUCKETS
    assert all(read_marks([one], {}) == {"a": last} for one in told)


def test_nothing_comes_of_nothing(job: Job) -> None:
    assert not list(sent(job, placed(job, 1, count=50, sources=["a"]).slice(0, 0)))
