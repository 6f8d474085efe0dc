"""State in Spark's own store: one blob per bucket in `transformWithState`.

Rows are packed before the shuffle into one Arrow blob per bucket, and unpacked answers come out,
because the operator hands over cell by cell. What a bucket cannot see for itself, how far the
sources in other buckets have come, travels with the blobs as marks to every bucket.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from concordant.spark.job import Job
from concordant.spark.normalise import bucket
from concordant.spark.relations import answer_schema
from concordant.spark.release import Release, advanced
from concordant.spark.rows import SOURCE, TIME, table_of
from concordant.spark.state_files import BUCKET, placed_schema
from concordant.spark.step import advance, counted, packed, unpacked
from concordant.spark.warm import WARM, settle, unpacked_job

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
"""`transformWithState` works with this provider alone."""

_BLOBS = "bucket int, rows binary, marks binary"


def answers_of(rows: DataFrame, job: Job, release: Release, bucket_count: int) -> DataFrame:
    """The stream of answers to a stream of travelling rows."""
    placed = rows.select(bucket(job, bucket_count).alias(BUCKET), "*")
    blobs = placed.mapInArrow(_pack(job.packed, bucket_count, release.mode != "log"), _BLOBS)
    found = blobs.groupBy(BUCKET).transformWithState(
        statefulProcessor=_Processor(job.packed, release),
        outputStructType="answers binary",
        outputMode="append",
        timeMode="none",
    )
    return found.mapInArrow(_unpack, from_arrow_schema(answer_schema(job)))


def _pack(
    packed_job: bytes, bucket_count: int, marked: bool
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def run(batches: Iterable[Any]) -> Iterator[Any]:
        whole = table_of(batches, placed_schema(unpacked_job(packed_job)))
        numbers = whole.column(BUCKET).to_numpy()
        rows = whole.drop_columns(BUCKET)
        marks = msgspec.msgpack.encode(_marks(rows)) if marked else b""
        wanted = range(bucket_count) if marked and whole.num_rows else np.unique(numbers).tolist()
        blobs = [packed(rows.filter(pa.array(numbers == number))) for number in wanted]
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(list(wanted), pa.int32()),
                pa.array(blobs, pa.binary()),
                pa.array([marks] * len(blobs), pa.binary()),
            ],
            names=[BUCKET, "rows", "marks"],
        )

    return run


def _marks(rows: Any) -> dict[str, int]:
    """How far each source has come in these rows."""
    found = rows.group_by(SOURCE).aggregate([(TIME, "max")]).to_pylist()
    return {
        one[SOURCE]: one[f"{TIME}_max"]
        for one in found
        if None not in (one[SOURCE], one[f"{TIME}_max"])
    }


def _unpack(batches: Iterable[Any]) -> Iterator[Any]:
    for batch in batches:
        for blob in batch.column(0):
            yield from pa.ipc.open_stream(blob.as_buffer()).read_all().to_batches()


class _Processor(StatefulProcessor):
    """One bucket: opened from its blob, given what came, closed again."""

    def __init__(self, packed_job: bytes, release: Release) -> None:
        self._packed = packed_job
        self._release = release

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
        for one in came:
            if one["marks"]:
                new = msgspec.msgpack.decode(bytes(one["marks"]), type=dict[str, int])
                state.marks = advanced(state.marks, new.items())
        table = unpacked(opened.job, [bytes(one["rows"]) for one in came])
        answers = advance(opened, table, until_us=self._release.until(state.marks))
        sealed = opened.save()
        self._state.update((sealed,))
        whole = pa.concat_tables([answers, counted(opened, sealed)])
        WARM.keep(opened, sealed)
        yield Row(answers=packed(whole))

    def close(self) -> None:
        settle()
