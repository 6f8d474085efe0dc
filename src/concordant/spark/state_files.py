"""State in files: a micro-batch is a table, a bucket's state is read before and written after.

A task that is run again (a retry, speculation, the same micro-batch after a crash) reads the same
older state and writes the same newer one. Needs storage that all workers see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.pandas.types import from_arrow_schema

from concordant.spark.checkpoint import Checkpoint, Commit, Told
from concordant.spark.job import Job
from concordant.spark.normalise import bucket
from concordant.spark.packing import BUCKET, PACKED_SCHEMA, all_unpacked, packing, read_marks
from concordant.spark.relations import answer_schema
from concordant.spark.release import Release
from concordant.spark.step import advance
from concordant.spark.warm import WARM, settle


def answers_of(
    rows: DataFrame,
    job: Job,
    folder: Path,
    *,
    before: Commit | None,
    run: str,
    release: Release,
    bucket_count: int,
) -> DataFrame:
    """What the step after `before` answers; every bucket takes part, because one may hold events
    back. Its states are written under the name of the `run`.
    """
    numbers = rows.sparkSession.range(0, bucket_count, 1, 1)
    every = numbers.select(F.col("id").cast("int").alias(BUCKET))
    placed = rows.select(bucket(job, bucket_count).alias(BUCKET), "*")
    pack = packing(job.packed, bucket_count)
    whole = placed.mapInArrow(pack, PACKED_SCHEMA).unionByName(every, allowMissingColumns=True)
    tasks = min(bucket_count, rows.sparkSession.sparkContext.defaultParallelism)
    spread = whole.repartition(tasks, F.col(BUCKET) % tasks)
    task = _task(job.packed, str(folder), before, run, release)
    return spread.mapInArrow(task, from_arrow_schema(answer_schema(job)))


def _task(
    packed: bytes, folder: str, before: Commit | None, run: str, release: Release
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    step = 0 if before is None else before.step + 1

    def task(batches: Iterable[Any]) -> Iterator[Any]:
        checkpoint = Checkpoint(Path(folder))
        marks = {} if before is None else before.marks
        came: dict[int, list[Any]] = {}
        for one in batches:
            numbers, blobs, heard = one.columns
            marks = read_marks(heard.to_pylist(), marks)
            for number, blob in zip(numbers.to_pylist(), blobs, strict=True):
                found = came.setdefault(number, [])
                if blob.is_valid:
                    found.append(blob.as_buffer())
        until_us = release.until(marks)
        for number in sorted(came):
            opened = WARM.open(packed, checkpoint.read_state(number, before))
            rows = all_unpacked(opened.job, came.pop(number))
            answers = advance(opened, rows, until_us=until_us, marks=marks)
            state = opened.save()
            told = Told(opened.told(state), marks)
            checkpoint.write_state(number, step, run, state, told)
            WARM.keep(opened, state)
            yield from answers.to_batches()
        settle()

    return task
