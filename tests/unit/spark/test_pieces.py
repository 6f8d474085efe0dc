"""Pieces of a table, merged behind the shuffle: every place has all its rows, in order."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from concordant.language import parse
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark import pieces as module
from concordant.spark.job import Job, make_job
from concordant.spark.pieces import KEY, ROWS, merged
from concordant.spark.placing import numbers_of_places, spark_hash
from concordant.spark.rows import row_schema
from tests.buckets import pieces_of

TOPICS = {name: Topic(name, {"key": Kind.INT, "text": Kind.STRING}) for name in ("A", "B")}
ONE = 'A then B and A.text = "x" partition by key'
TWO = f"one: {ONE}\ntwo: A then B partition by text"


@pytest.fixture(params=[ONE, TWO], ids=["one set", "two sets"])
def job(request: pytest.FixtureRequest) -> Job:
    return make_job(parse(request.param), TOPICS, {})


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUP", 40)
    monkeypatch.setattr(module, "PIECE", 4)
    monkeypatch.setattr(module, "MERGED_BYTES", 1_000)


def rows_at_random(job: Job, seed: int, *, times: int, nulls: bool) -> Any:
    random = Random(seed)
    sources: list[str | None] = random.choice([["s"], ["s", "r", "ß", "𝄞"]])
    gap = [None] if nulls else []
    rows = [
        {
            "set": random.randrange(len(job.sets)),
            "topic": random.choice([0, 1]),
            "source": random.choice([*sources * 5, *gap]),
            "seq": random.choice([random.randrange(100), *gap * (number % 9 == 0)]),
            "time": random.choice([random.randrange(times), *gap * (number % 7 == 0)]),
            "id": None,
            "int:key": random.randrange(9),
            "string:text": random.choice([None, "x", "y"]),
        }
        for number in range(200)
    ]
    return pa.Table.from_pylist(rows, row_schema(job))


def key_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in KEY)


def whole(row: dict[str, Any]) -> str:
    return repr(row)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("times", [1, 20, 10_000])
@pytest.mark.parametrize("nulls", [False, True], ids=["", "nulls"])
def test_merged_pieces_equal_a_plain_sort(job: Job, seed: int, times: int, nulls: bool) -> None:
    rows = rows_at_random(job, seed, times=times, nulls=nulls)
    found = []
    homes: dict[tuple[Any, ...], int] = {}
    for place, pieces in pieces_of(job, rows, Random(seed), places=3).items():
        batches = pieces.combine_chunks().to_batches(max_chunksize=5)
        mine = [row for one in merged(batches, job) for row in one.to_pylist()]
        keys = [key_of(row) for row in mine if None not in key_of(row)]
        assert keys == sorted(keys)
        found += mine
        for row in mine:
            partition = row["set"], row["int:key"] if row["set"] == 0 else row["string:text"]
            assert homes.setdefault(partition, place) == place
    assert sorted(map(whole, found)) == sorted(map(whole, rows.to_pylist()))
    assert len(set(homes.values())) == 3


@pytest.mark.parametrize("times", ["each its own", "all the same"])
def test_rows_that_come_in_order_hardly_wait(job: Job, times: str) -> None:
    count = 4_000
    numbers = list(range(count))
    rows = pa.table(
        {
            "set": pa.array([0] * count, pa.int32()),
            "topic": pa.array([0] * count, pa.int32()),
            "source": ["s"] * count,
            "seq": numbers,
            "time": numbers if times == "each its own" else [7] * count,
            "id": pa.nulls(count, pa.string()),
            "int:key": [0] * count,
            "string:text": ["x"] * count,
        },
        schema=row_schema(job),
    )
    given = 0

    def batches(pieces: Any) -> Any:
        nonlocal given
        for batch in pieces.combine_chunks().to_batches(max_chunksize=1):
            given += sum(
                pa.ipc.read_record_batch(one.as_buffer(), row_schema(job)).num_rows
                for one in batch.column(ROWS)
            )
            yield batch

    (pieces,) = (
        pa.Table.from_batches(module.cutting(job.packed, [5])(rows.to_batches()))
        for rows in [rows.select(module.cut_columns(job))]
    )
    got = most = 0
    for one in merged(batches(pieces), job):
        most = max(most, given - got)
        got += one.num_rows
    assert got == count
    assert most <= 40


def test_long_rows_are_in_small_groups_and_pieces(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PIECE_BYTES", 300)
    rows = rows_at_random(job, 1, times=20, nulls=False)
    by_place = pieces_of(job, rows, Random(1), places=1)
    sizes = [
        pa.ipc.read_record_batch(one.as_buffer(), row_schema(job)).num_rows
        for one in by_place[0].column(ROWS)
    ]
    assert max(sizes) < 4 * 2
    assert sum(sizes) == rows.num_rows


@pytest.mark.parametrize("count", [1, 2, 3, 4, 200, 1_000])
def test_every_place_has_a_number_that_goes_there(count: int) -> None:
    numbers = numbers_of_places(count)
    assert (spark_hash(np.array(numbers)) % count).tolist() == list(range(count))
