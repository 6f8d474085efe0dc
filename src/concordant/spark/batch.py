"""Tables: rows in pieces to the task of their partition, merged there, then through the core.

Spark sorts the pieces of a partition (see `pieces`), so that a task needs no more memory than what
overlaps and the queues, however many events a key has. Starts nothing: the result is a plan like
any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from concordant.spark.job import Job
from concordant.spark.pieces import (
    KEY,
    PIECES_SCHEMA,
    PLACE,
    PLACE_COUNT_MAX,
    cutting,
    merged,
)
from concordant.spark.placing import numbers_of_places
from concordant.spark.relations import answer_schema
from concordant.spark.rows import SET
from concordant.spark.step import Bucket, counted
from concordant.spark.warm import settle, unpacked_job

PARTITIONS = "spark.sql.shuffle.partitions"
"""How many tasks Spark begins to spread rows over; it joins those that get few."""


def answers_of(rows: DataFrame, job: Job) -> DataFrame:
    """Everything that a job answers to travelling rows."""
    given = rows.sparkSession.conf.get(PARTITIONS)
    places = numbers_of_places(min(PLACE_COUNT_MAX, int(given or 1)))
    if len(job.sets) == 1:
        rows = rows.drop(SET)  # its number is known
    pieces = rows.mapInArrow(cutting(job.packed, places), PIECES_SCHEMA)
    ordered = pieces.repartition(PLACE).sortWithinPartitions(*KEY)
    return ordered.mapInArrow(task(job.packed), from_arrow_schema(answer_schema(job)))


def task(packed: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What one task does with its pieces."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        job = unpacked_job(packed)
        whole = Bucket(job)
        for rows in merged(batches, job):
            yield from whole.take(rows).to_batches()
        yield from counted(whole, b"").to_batches()
        settle()

    return run
