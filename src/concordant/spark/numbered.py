"""Tasks that fetch their rows themselves: Spark gives each a number, and no row crosses to it.

What a number stands for is said by the reader that comes along: files that all tasks scan (`scan`),
or the share that was laid down for each (`spool`). Either way a task matches what it reads, chunk
after chunk. This is for a local master, where tasks see what the driver sees.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from concordant.spark.job import Job
from concordant.spark.relations import answer_schema
from concordant.spark.step import Bucket, counted
from concordant.spark.warm import settle, unpacked_job

Reader = Callable[[int, Job], Iterable[Any]]
"""The travelling rows of the task with a number, as tables, each set's rows in order."""


def task_count(session: Any, job: Job) -> int | str:
    """How many tasks there should be, or why they cannot fetch their rows."""
    if not isinstance(session, SparkSession):
        return "the session is a remote one"
    context = session.sparkContext
    if not (context.master or "").startswith("local"):
        return "workers may run where the files are not"
    cores: int = context.defaultParallelism
    return cores if any(one.key for one in job.sets) else min(cores, len(job.sets))


def answers_of(session: SparkSession, count: int, job: Job, read: Reader) -> DataFrame:
    """Everything that a job answers to the rows that so many tasks read."""
    numbers = session.range(0, count, 1, count)
    return numbers.mapInArrow(_task(read, job.packed), from_arrow_schema(answer_schema(job)))


def _task(read: Reader, packed: bytes) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def run(batches: Iterable[Any]) -> Iterator[Any]:
        job = unpacked_job(packed)
        for number in (int(one) for batch in batches for one in batch.column(0).to_numpy()):
            whole = Bucket(job)
            for rows in read(number, job):
                yield from whole.take(rows).to_batches()
            yield from counted(whole, b"").to_batches()
        settle()

    return run
