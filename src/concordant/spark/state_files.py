"""State in files: a micro-batch is a table, a bucket's state is read before and written after.

A task that is run again (a retry, speculation, the same micro-batch after a crash) reads the same
older state and writes the same newer one. Needs storage that all workers see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema

from concordant.spark.checkpoint import Checkpoint
from concordant.spark.job import Job
from concordant.spark.normalise import bucket
from concordant.spark.relations import answer_schema
from concordant.spark.rows import MARK, SET, TOPIC, row_schema, table_of
from concordant.spark.step import advance
from concordant.spark.warm import WARM, settle, unpacked_job

BUCKET = "bucket"


def answers_of(
    rows: DataFrame, job: Job, folder: Path, *, batch: int, until_us: int, bucket_count: int
) -> DataFrame:
    """What a micro-batch answers; every bucket takes part, because one may hold events back."""
    every = rows.sparkSession.range(bucket_count).select(F.col("id").cast("int").alias(BUCKET))
    mine = rows.filter(F.coalesce(F.col(TOPIC), F.lit(0)) != MARK)
    placed = mine.select(bucket(job, bucket_count).alias(BUCKET), "*")
    whole = placed.unionByName(every, allowMissingColumns=True)
    tasks = min(bucket_count, rows.sparkSession.sparkContext.defaultParallelism)
    spread = whole.repartition(tasks, F.col(BUCKET) % tasks)
    run = _task(job.packed, str(folder), batch, until_us)
    return spread.mapInArrow(run, from_arrow_schema(answer_schema(job)))


def _task(
    packed: bytes, folder: str, batch: int, until_us: int
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def run(batches: Iterable[Any]) -> Iterator[Any]:
        whole = table_of(batches, placed_schema(unpacked_job(packed)))
        checkpoint = Checkpoint(Path(folder))
        column = whole.column(BUCKET)
        numbers = sorted(column.unique().to_pylist())
        whole = whole.filter(pa.compute.is_valid(whole.column(SET)))
        column = whole.column(BUCKET)
        whole = whole.drop_columns(BUCKET)
        for number in numbers:
            rows = whole.filter(pa.compute.equal(column, number))
            opened = WARM.open(packed, checkpoint.read_state(number, batch))
            answers = advance(opened, rows, until_us=until_us)
            state = opened.save()
            checkpoint.write_state(number, batch, state, opened.told(state))
            WARM.keep(opened, state)
            yield from answers.to_batches()
        settle()

    return run


def placed_schema(job: Job) -> Any:
    """Travelling rows with the bucket they go to."""
    return pa.schema([(BUCKET, pa.int32()), *row_schema(job)])
