"""State in Spark's own store: one blob per bucket in `transformWithState`.

Rows come packed (see `packing`), and answers leave so: the operator hands over cell by cell.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from concordant.errors import UsageError
from concordant.spark.job import Job
from concordant.spark.normalise import bucket
from concordant.spark.packing import (
    BUCKET,
    MARKS,
    PACKED_SCHEMA,
    ROWS,
    all_unpacked,
    packing,
    read_marks,
)
from concordant.spark.relations import answer_schema
from concordant.spark.release import Release
from concordant.spark.rows import packed, unpacked
from concordant.spark.step import advance, counted
from concordant.spark.warm import WARM, settle

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""`transformWithState` works with this provider alone."""


def answers_of(rows: DataFrame, job: Job, release: Release, bucket_count: int) -> DataFrame:
    """The stream of answers to a stream of travelling rows."""
    placed = rows.select(bucket(job, bucket_count).alias(BUCKET), "*")
    pack = packing(job.packed, bucket_count)
    blobs = placed.mapInArrow(pack, PACKED_SCHEMA)
    found = blobs.groupBy(BUCKET).transformWithState(
        statefulProcessor=_Processor(job.packed, release, bucket_count),
        outputStructType="answers binary",
        outputMode="append",
        timeMode="none",
    )
    return found.mapInArrow(_unpack, from_arrow_schema(answer_schema(job)))


def _unpack(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for blob in batch.column(0):
            yield from unpacked(blob.as_buffer()).to_batches()


class _Processor(StatefulProcessor):
    """One bucket: opened from its blob, given what came, closed again."""

    def __init__(self, packed_job: bytes, release: Release, bucket_count: int) -> None:
        self._packed = packed_job
        self._release = release
        self._bucket_count = bucket_count

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("bucket", "state binary")

    def handleInputRows(  # noqa: N802 - Spark's names
        self,
        key: Any,
        rows: Iterator[Row],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Row]:
        del key, timerValues
        came = list(rows)
        saved = self._state.get()
        opened = WARM.open(self._packed, None if saved is None else bytes(saved[0]))
        state = opened.state
        if saved is not None and state.bucket_count != self._bucket_count:
            raise UsageError(
                f"the checkpoint was begun with {state.bucket_count} buckets, and now there are "
                f"{self._bucket_count}: what is kept in it would be wrong",
                hint="go on as it was begun, or give another checkpoint folder",
            )
        state.bucket_count = self._bucket_count
        state.marks = read_marks((one[MARKS] for one in came), state.marks)
        table = all_unpacked(opened.job, [one[ROWS] for one in came if one[ROWS]])
        until_us = self._release.until(state.marks)
        answers = advance(opened, table, until_us=until_us, marks=state.marks)
        state.marks = self._release.kept(state.marks)
        sealed = opened.save()
        self._state.update((sealed,))
        whole = pa.concat_tables([answers, counted(opened, sealed)])
        WARM.keep(opened, sealed)
        yield Row(answers=packed(whole))

    def close(self) -> None:
        settle()
