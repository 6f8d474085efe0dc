"""Rows as they arrive in a worker, to a batch of events; what cannot be an event is set aside.

The driver has already cast every column (see `normalise`), so only values are looked at here: a
missing topic, time, source or seq, and integers beyond the symmetric range. Knows Arrow, no Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from concordant.correlate.columns import Array, Batch, Column
from concordant.files.arrow import filled, texts_of, valid_of
from concordant.files.table import blank_is_null
from concordant.files.times import readable_instants
from concordant.files.write import array_of
from concordant.model.kind import INT_MIN, Kind, Value
from concordant.spark.job import Job, Wanted

SET, TOPIC, SOURCE, SEQ, TIME, ID = "set", "topic", "source", "seq", "time", "id"
"""Names of the columns that travel beside the attributes."""

WRITTEN = "written"
"""The time as the input writes it, where that is text: it travels beside an empty time until the
worker has read it, as the local engine reads it."""

MARK = -1
"""The topic code of a progress mark: no event, but a sign that its source has come so far."""

UNREADABLE = -2
"""The topic code of a row that the source could not read as it was told to."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")

_TYPES = {
    Kind.BOOL: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.TIME: pa.int64(),
}


def attribute_column(name: str, kind: Kind) -> str:
    """The name under which an attribute travels: the same whatever else travels with it.

    Spark takes dots and backticks in names for its own, and upper case for lower case: they are
    written as numbers.
    """
    return f"{kind}:{''.join(c if c in _PLAIN else f'%{ord(c):x}%' for c in name)}"


def row_schema(job: Job) -> Any:
    """The Arrow schema of travelling rows."""
    return pa.schema(
        [
            (SET, pa.int32()),
            (TOPIC, pa.int32()),
            (SOURCE, pa.string()),
            (SEQ, pa.int64()),
            (TIME, pa.int64()),
            (ID, pa.string()),
            *((attribute_column(name, kind), _TYPES[kind]) for name, kind in job.columns),
        ]
    )


def table_of(batches: Iterable[Any], schema: Any) -> Any:
    """Record batches as one table, times that are texts read; Spark's batches say of some columns
    that they hold no null."""
    found = list(batches)
    if not found:
        return schema.empty_table()
    table = pa.Table.from_batches(found)
    if WRITTEN in table.column_names:
        table = _with_times(table)
    return table.cast(schema)


def _with_times(table: Any) -> Any:
    """Travelling rows with the times that were written as texts."""
    read = readable_instants(table.column(WRITTEN))
    given = table.column(TIME)
    time = read if given.null_count == len(given) else pc.coalesce(given, read)
    return table.set_column(table.schema.get_field_index(TIME), TIME, time).drop_columns(WRITTEN)


def packed(table: Any) -> bytes:
    """Rows as bytes."""
    sink = pa.BufferOutputStream()
    pack(table, sink)
    return bytes(sink.getvalue())


def pack(table: Any, sink: Any) -> None:
    """Rows as bytes into a sink."""
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)


def unpacked(data: Any) -> Any:
    """Bytes as rows, which share their memory."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def gathered(
    batches: Iterable[Any], row_count: int, byte_count: int = sys.maxsize
) -> Iterator[list[Any]]:
    """Record batches in groups of at least so many rows or bytes; the last may be smaller."""
    waiting: list[Any] = []
    count = size = 0
    for batch in batches:
        waiting.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if count >= row_count or size >= byte_count:
            yield waiting
            waiting, count, size = [], 0, 0
    if waiting:
        yield waiting


def is_event(rows: Any) -> Any:
    """Which rows are more than marks of progress."""
    return pc.not_equal(pc.fill_null(rows.column(TOPIC), 0), MARK)


def came(rows: Any, *, time_ordered: bool) -> Iterator[tuple[str, int]]:
    """How far each source has come in some rows: its latest time or, of a log, its last number."""
    by = TIME if time_ordered else SEQ
    rows = rows.select([TOPIC, SOURCE, by])
    if not time_ordered:  # who only marks progress may be beside the log
        rows = rows.filter(is_event(rows))
    source = rows.column(SOURCE)
    if is_uniform(source):
        found = [(source[0].as_py(), pc.max(rows.column(by)).as_py())]
    else:
        latest = rows.select([SOURCE, by]).group_by(SOURCE).aggregate([(by, "max")])
        found = list(zip(*(latest.column(i).to_pylist() for i in (0, 1)), strict=True))
    return (one for one in found if None not in one)


def is_uniform(column: Any) -> bool:
    """Is it one value, or null, all the way?"""
    if not len(column):
        return False
    if column.null_count:
        return bool(column.null_count == len(column))
    first, last = column[0], column[-1]
    return bool(first == last) and pc.all(pc.equal(column, first)).as_py()


@dataclass(frozen=True)
class Rejected:
    """A row that is no event, or no event any more: what is known of it, and why."""

    what: str
    """`bad`, `late` or `repeated`."""
    reason: str
    topic: str | None
    source: str | None
    seq: int | None
    time: int | None
    attributes: Mapping[Wanted, Value]
    """What else travelled of it."""


def batch_of(job: Job, table: Any) -> tuple[Batch, list[Rejected]]:
    """The events of a table of travelling rows, in row order, and what was set aside."""
    kept, rejected = _good(job, table)
    if kept is not None:
        table = table.filter(pa.array(kept))
    count = table.num_rows
    attributes: dict[tuple[str, Kind], Column] = {}
    for name, kind in job.columns:
        attributes[name, kind] = _column(kind, table.column(attribute_column(name, kind)))
    for topic in job.topics:
        for name, kind in topic.attributes.items():
            if kind is Kind.NULL:
                nothing = np.zeros(count, np.bool_)
                attributes[name, kind] = Column(kind, nothing, nothing)
    ids = table.column(ID)
    batch = Batch(
        {topic.name: topic for topic in job.topics},
        _numbers(table.column(TOPIC), np.int32),
        texts_of(table.column(SOURCE)),
        _numbers(table.column(SEQ), np.int64),
        _numbers(table.column(TIME), np.int64),
        attributes,
        None if ids.null_count == len(ids) else blank_is_null(texts_of(ids)),
    )
    return batch, rejected


def without_own_ids(table: Any) -> Any:
    """Travelling rows; ids that are `source:seq` anyway need not travel."""
    ids = table.column(ID)
    if not len(ids) or ids[0].as_py() != f"{table.column(SOURCE)[0]}:{table.column(SEQ)[0]}":
        return table  # somebody gave ids of another kind
    own = pc.equal(ids, own_ids(texts_of(table.column(SOURCE)), table.column(SEQ)))
    kept = pa.nulls(len(ids), pa.string())
    if not pc.all(own).as_py():
        kept = pc.if_else(own, None, ids)
    return table.set_column(table.schema.get_field_index(ID), ID, kept)


def own_ids(source: Column, seq: Any) -> Any:
    """`source:seq` as Arrow texts, the ids of events that have been given none."""
    numbers = seq.cast(pa.string())
    if len(source.dictionary) == 1 and source.valid is None:  # a third of the time of joining
        return pc.binary_replace_slice(numbers, 0, 0, f"{source.dictionary[0]}:")
    return pc.binary_join_element_wise(array_of(source), numbers, ":")


def _column(kind: Kind, values: Any) -> Column:
    if kind is Kind.STRING:
        return texts_of(values)
    valid = valid_of(values)
    if kind is Kind.BOOL:
        return Column(kind, _numbers(filled(values, False), np.bool_), valid)
    if kind is Kind.FLOAT:
        return Column(kind, _numbers(filled(values, 0.0), np.float64), valid)
    return Column(kind, _numbers(filled(values, 0), np.int64), valid)


def _numbers(values: Any, dtype: Any) -> Array:
    return np.require(values.to_numpy(), dtype, ["C", "W"])


_REASONS = {
    TOPIC: "the topic is null or missing",
    TIME: "the time is null, missing or no ISO 8601 text",
    SOURCE: "the source is null or missing",
    SEQ: "the seq is null or missing",
}


def _good(job: Job, table: Any) -> tuple[Array | None, list[Rejected]]:
    """Which rows are events; None if all are."""
    bad: dict[int, str] = {}
    codes = _numbers(filled(table.column(TOPIC), 0), np.int32)
    for row in np.flatnonzero(codes == UNREADABLE):
        bad[int(row)] = "the source cannot read it: it has not the fields and types that it should"
    for name, reason in _REASONS.items():
        values = table.column(name)
        if values.null_count:
            for row in np.flatnonzero(values.is_null().to_numpy()):
                bad.setdefault(int(row), reason)
    for column, name in whole_numbers(job).items():
        beyond = filled(table.column(column), 0).to_numpy() < INT_MIN
        for row in np.flatnonzero(beyond):
            bad.setdefault(
                int(row), f"the integer in '{name}' is beyond the symmetric 64-bit range"
            )
    if not bad:
        return None, []
    kept = np.ones(table.num_rows, np.bool_)
    kept[list(bad)] = False
    return kept, [_rejected(job, table, row, bad[row]) for row in sorted(bad)]


def whole_numbers(job: Job) -> dict[str, str]:
    """The travelling columns that hold integers of 64 bits, with the names that people know."""
    found = {SEQ: SEQ, TIME: TIME}
    for name, kind in job.columns:
        if kind in (Kind.INT, Kind.TIME):
            found[attribute_column(name, kind)] = name
    return found


def _rejected(job: Job, table: Any, row: int, reason: str) -> Rejected:
    code, source, seq, time = (
        table.column(name)[row].as_py() for name in (TOPIC, SOURCE, SEQ, TIME)
    )
    attributes = {
        (name, kind): table.column(attribute_column(name, kind))[row].as_py()
        for name, kind in job.columns
    }
    return Rejected("bad", reason, topic_name(job, code), source, seq, time, attributes)


def topic_name(job: Job, code: int | None) -> str | None:
    """The name of a topic that travels as a code."""
    return None if code is None or code < 0 else job.topics[code].name
