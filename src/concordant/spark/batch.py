"""Tables: rows of a partition to one task, sorted, then one Arrow hop through the core.

Spark sorts within a partition, so that a task needs no more memory than one chunk and the queues,
however many events a key has. Starts nothing: the result is a plan like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from concordant.spark.job import Job
from concordant.spark.normalise import bucket
from concordant.spark.relations import answer_schema
from concordant.spark.rows import SEQ, SOURCE, TIME, gathered, row_schema, table_of
from concordant.spark.step import Bucket, counted
from concordant.spark.warm import settle, unpacked_job

BUCKET_COUNT = 1 << 16
"""Of tables: fine enough for any number of tasks, which Spark chooses by the size of the data."""

_CHUNK = 1 << 16
"""Rows joined before they are matched: Spark hands over fewer at a time than the kernel likes."""


def answers_of(rows: DataFrame, job: Job) -> DataFrame:
    """Everything that a job answers to travelling rows."""
    sorted_rows = rows.repartition(bucket(job, BUCKET_COUNT)).sortWithinPartitions(
        TIME, SOURCE, SEQ
    )
    return sorted_rows.mapInArrow(task(job.packed), from_arrow_schema(answer_schema(job)))


def task(packed: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What one task does with its rows."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        job = unpacked_job(packed)
        whole = Bucket(job)
        for group in gathered(batches, _CHUNK):
            yield from whole.take(table_of(group, row_schema(job))).to_batches()
        yield from counted(whole, b"").to_batches()
        settle()

    return run
