"""Rows of a table on their way: cut into ordered pieces before the shuffle, merged behind it.

Spark's shuffle, its sort and its way into Python handle every row by itself. So the rows of a task
are sorted and cut into pieces before it: an Arrow blob for some rows of one place, with the key of
the first. Spark sorts the pieces by that key, and spills them where they do not fit. Whoever gets
them in this order needs only those at hand that overlap: what stands before the first key of the
next piece is complete. Of rows that come more or less in order that is next to nothing, of rows in
no order at all one piece of each group of `GROUP` rows. Knows Arrow, no Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from concordant.correlate.columns import Array
from concordant.spark.job import Job
from concordant.spark.packing import GROUP, GROUP_BYTES, taken
from concordant.spark.rows import (
    SEQ,
    SET,
    SOURCE,
    TIME,
    gathered,
    row_schema,
    table_of,
    without_own_ids,
)
from concordant.spark.share import owners
from concordant.spark.step import in_total_order
from concordant.spark.warm import settle, unpacked_job

PLACE, ROWS = "place", "rows"

KEY = (TIME, SOURCE, SEQ)
"""Columns that say where a row stands in the order, and of a piece, where its first row does."""

PIECES_SCHEMA = f"{PLACE} int, {TIME} bigint, {SOURCE} string, {SEQ} bigint, {ROWS} binary"
"""Columns of pieces, as Spark is told."""

PLACE_COUNT_MAX = 1 << 10
"""With more places the pieces of a group become so small that they are rows again."""

PIECE = 1 << 11
PIECE_BYTES = GROUP_BYTES // (GROUP // PIECE)
"""At most so many rows, of about so many bytes, are a piece: fewer cost more, more have to wait
longer for what stands between their first and their last."""

MERGED_BYTES = 1 << 24
"""Pieces are merged when so much has come; with more that overlaps, when it has doubled."""

Key = tuple[int, str, int]


def cutting(packed_job: bytes, places: Sequence[int]) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """What a task does with its rows before the shuffle: pieces for places of these numbers."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        job = unpacked_job(packed_job)
        numbers = pa.array(places, pa.int32())
        for group in gathered(batches, GROUP, GROUP_BYTES):
            for rows, has_key in _by_key(_travelling(group, job)):
                yield _cut(rows, job, numbers, has_key=has_key)
        settle()

    return run


def cut_columns(job: Job) -> list[str]:
    """The columns that a task has to be given: the number of the only set is known."""
    names: list[str] = row_schema(job).names
    return names if len(job.sets) > 1 else [name for name in names if name != SET]


def _travelling(group: list[Any], job: Job) -> Any:
    schema = row_schema(job)
    rows = table_of(group, pa.schema([schema.field(name) for name in cut_columns(job)]))
    if len(job.sets) == 1:
        rows = rows.add_column(0, schema.field(SET), pa.array(np.zeros(rows.num_rows, np.int32)))
    return without_own_ids(rows)


def _by_key(rows: Any) -> Iterator[tuple[Any, bool]]:
    """Rows in their order, and apart from them those that lack a part of the key: no events."""
    if any(rows.column(name).null_count for name in KEY):
        whole = pc.is_valid(rows.column(TIME))
        for name in (SOURCE, SEQ):
            whole = pc.and_(whole, pc.is_valid(rows.column(name)))
        yield rows.filter(pc.invert(whole)), False
        rows = rows.filter(whole)
    if rows.num_rows:
        yield in_total_order(rows), True


def _cut(rows: Any, job: Job, numbers: Any, *, has_key: bool) -> Any:
    """Pieces of rows that are in order, by their places."""
    place = _places(rows, job, len(numbers))
    order = np.argsort(place, kind="stable")
    place, whole = place[order], taken(rows, pa.array(order)).combine_chunks().to_batches()[0]
    size = max(1, min(PIECE, len(order) * PIECE_BYTES // max(1, whole.nbytes)))
    starts = _starts(place, size)
    sink, ends = pa.BufferOutputStream(), [0]
    for start, end in pairwise([*starts, len(place)]):
        sink.write(whole.slice(start, end - start).serialize())
        ends.append(sink.tell())
    offsets = pa.py_buffer(np.array(ends, np.int32))
    blobs = pa.Array.from_buffers(pa.binary(), len(starts), [None, offsets, sink.getvalue()])
    at = pa.array(starts, pa.int64())
    keys = [
        whole.column(name).take(at) if has_key else pa.nulls(len(starts), whole.column(name).type)
        for name in KEY
    ]
    return pa.RecordBatch.from_arrays(
        [numbers.take(pa.array(place).take(at)), *keys, blobs], names=[PLACE, *KEY, ROWS]
    )


def _places(rows: Any, job: Job, count: int) -> Array:
    """The place of each row."""
    if len(job.sets) == 1:
        return owners(rows, job, 0, count)
    chosen = rows.column(SET).to_numpy()
    place = np.zeros(len(chosen), np.uint16)
    for index in np.unique(chosen):
        mine = np.flatnonzero(chosen == index)
        place[mine] = owners(rows.take(pa.array(mine)), job, int(index), count)
    return place


def _starts(place: Array, size: int) -> list[int]:
    """Where pieces of at most so many rows begin; none has rows of two places."""
    firsts = [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), len(place)]
    return [start for first, end in pairwise(firsts) for start in range(first, end, size)]


# --- behind the shuffle ---------------------------------------------------------------------------


def merged(batches: Iterable[Any], job: Job) -> Iterator[Any]:
    """Travelling rows in their order, some at a time, of pieces that come by their keys."""
    schema = row_schema(job)
    waiting: list[Any] = []
    size, enough = 0, MERGED_BYTES
    for batch in batches:
        keys = zip(*(batch.column(name).to_pylist() for name in KEY), strict=True)
        for key, blob in zip(keys, batch.column(ROWS), strict=True):
            data = blob.as_buffer()
            piece = pa.Table.from_batches([pa.ipc.read_record_batch(data, schema)])
            if None in key:
                yield piece
                continue
            if size >= enough:
                ready, left = _parted(_joined(waiting), key)
                waiting, size = [left], left.nbytes
                enough = max(MERGED_BYTES, 2 * size)
                yield ready
            waiting.append(piece)
            size += data.size
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[Any]) -> Any:
    return in_total_order(pa.concat_tables(pieces).combine_chunks())


def _parted(rows: Any, key: Key) -> tuple[Any, Any]:
    """Rows in order before a key, and the others."""
    time, source, seq = key
    numbers = rows.column(TIME).to_numpy()
    cut, end = (int(np.searchsorted(numbers, time, side)) for side in ("left", "right"))
    if cut < end:
        same = rows.slice(cut, end - cut)
        sources = same.column(SOURCE)
        before = pc.and_(pc.equal(sources, source), pc.less(same.column(SEQ), seq))
        cut += pc.sum(pc.or_(pc.less(sources, source), before)).as_py()
    return rows.slice(0, cut), rows.slice(cut)
