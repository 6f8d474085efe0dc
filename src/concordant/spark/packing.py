"""Rows of a stream on their way to their buckets: a few blobs in place of many rows.

Spark's shuffle handles every row by itself, and again on its way into Python. So the rows of a task
are packed before it, an Arrow blob for each bucket, and unpacked behind it. How far the sources
have come in these rows goes along to every bucket, which thereby knows of all tasks what it cannot
see for itself: times, and of a log the last number. Knows Arrow, no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from concordant.spark.job import Job
from concordant.spark.release import advanced
from concordant.spark.rows import (
    came,
    gathered,
    is_event,
    is_uniform,
    pack,
    row_schema,
    table_of,
    unpacked,
    without_own_ids,
)
from concordant.spark.warm import settle, unpacked_job

BUCKET, ROWS, MARKS = "bucket", "rows", "marks"

PACKED_SCHEMA = f"{BUCKET} int, {ROWS} binary, {MARKS} binary"
"""Columns of what is packed, as Spark is told."""

GROUP = 1 << 18
GROUP_BYTES = 1 << 26
"""Rows that are packed together, or their bytes if they are long: what a task has to hold."""

_marks = msgspec.msgpack.Decoder(dict[str, int])


def placed_schema(job: Job) -> Any:
    """Travelling rows with the bucket they go to."""
    return pa.schema([(BUCKET, pa.int32()), *row_schema(job)])


def packing(packed_job: bytes, bucket_count: int) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What a task does with its rows before the shuffle."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        job = unpacked_job(packed_job)
        schema = placed_schema(job)
        marks: dict[str, int] = {}
        for group in gathered(batches, GROUP, GROUP_BYTES):
            rows = without_own_ids(table_of(group, schema))
            marks = advanced(marks, came(rows, time_ordered=job.time_ordered))
            yield _batch(*_by_bucket(rows), b"")
        if marks:
            every = pa.array(range(bucket_count), pa.int32())
            nothing = pa.nulls(bucket_count, pa.binary())
            yield _batch(every, nothing, msgspec.msgpack.encode(marks))
        settle()

    return run


def _by_bucket(rows: Any) -> tuple[Any, Any]:
    """The buckets that rows go to, and a blob for each; progress marks go nowhere."""
    event = is_event(rows)
    if not pa.compute.all(event).as_py():
        rows = rows.filter(event)
    numbers = rows.column(BUCKET).to_numpy()
    numbers = numbers.astype(np.min_scalar_type(numbers.max(initial=0)))  # short ones sort quickly
    order = np.argsort(numbers, kind="stable")
    numbers, rows = numbers[order], taken(rows.drop_columns(BUCKET), pa.array(order))
    buckets, starts = np.unique(numbers, return_index=True)
    sink, ends = pa.BufferOutputStream(), [0]
    for start, end in pairwise([*starts.tolist(), len(numbers)]):
        pack(rows.slice(start, end - start), sink)
        ends.append(sink.tell())
    offsets = pa.py_buffer(np.array(ends, np.int32))
    blobs = pa.Array.from_buffers(pa.binary(), len(buckets), [None, offsets, sink.getvalue()])
    return pa.array(buckets, pa.int32()), blobs


def taken(rows: Any, order: Any) -> Any:
    """Rows in an order; columns that say the same in every row stay as they are."""
    return pa.Table.from_arrays(
        [one if is_uniform(one) else one.take(order) for one in rows.columns], schema=rows.schema
    )


def _batch(buckets: Any, blobs: Any, marks: bytes) -> Any:
    told = pa.array([marks or None] * len(buckets), pa.binary())
    return pa.RecordBatch.from_arrays([buckets, blobs, told], names=[BUCKET, ROWS, MARKS])


def read_marks(told: Iterable[Any], marks: dict[str, int]) -> dict[str, int]:
    """Marks with those that came from some tasks."""
    for one in told:
        if one:
            marks = advanced(marks, _marks.decode(one).items())
    return marks


def all_unpacked(job: Job, blobs: Iterable[Any]) -> Any:
    """Travelling rows of several blobs."""
    return pa.concat_tables([row_schema(job).empty_table(), *map(unpacked, blobs)])
