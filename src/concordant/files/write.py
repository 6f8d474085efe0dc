"""Batches to tables and files: the inverse of reading.

Columns are topic, source, seq, time, id and then the attributes. What a format cannot hold is
refused, with one exception that is stated: JSON has no times, so attributes of that kind become
ISO 8601 text in JSON Lines and are read back as strings.
"""

from __future__ import annotations

import contextlib
import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from concordant.correlate.columns import Batch, Column
from concordant.errors import UsageError
from concordant.files.atomic import atomic_output
from concordant.files.formats import Format, format_of
from concordant.files.join import agreed, inexact_row, merged_column
from concordant.files.table import reason
from concordant.model.kind import Kind, format_instant, parse_instant

_RESERVED = ("topic", "source", "seq", "time", "id")
_FIRST = parse_instant("0001-01-01T00:00:00Z")
_LAST = parse_instant("9999-12-31T23:59:59.999999Z")
_TYPES = {
    Kind.BOOL: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.TIME: pa.timestamp("us", "UTC"),
    Kind.NULL: pa.null(),
}


def to_arrow(batch: Batch) -> Any:
    """The batch as a `pyarrow.Table`, rows in their order."""
    _check_names(batch)
    columns: dict[str, Any] = {
        "topic": _texts(Column(Kind.STRING, batch.topic, None, batch.topic_names)),
        "source": _texts(batch.source),
        "seq": pa.array(batch.seq),
        "time": pa.array(batch.time, _TYPES[Kind.TIME]),
    }
    ids = pc.binary_join_element_wise(columns["source"], columns["seq"].cast(pa.string()), ":")
    columns["id"] = ids if batch.ids is None else pc.coalesce(_texts(batch.ids), ids)
    for name, column in _single_kinds(batch).items():
        columns[name] = array_of(column)
    return pa.table(columns)


def write_events(batch: Batch, path: str | os.PathLike[str]) -> None:
    """Write a new file in the format of its extension; it appears only when it is whole."""
    target = Path(path)
    kind, packed = format_of(target)
    with atomic_output(target) as temporary:
        try:
            with _opened(temporary, packed) as stream:
                if kind is Format.JSON_LINES:
                    for line in _json_lines(batch):
                        stream.write(line)
                elif kind is Format.CSV:
                    pcsv.write_csv(_csv_table(batch), stream)
                elif kind is Format.PARQUET:
                    pq.write_table(to_arrow(batch), stream)
                else:
                    table = to_arrow(batch)
                    with pa.ipc.new_file(stream, table.schema) as writer:
                        writer.write_table(table)
        except (OSError, pa.ArrowException) as error:
            raise UsageError(
                f"it cannot be written: {reason(error)}",
                hint="is there space on the disk?",
                place=str(target),
            ) from None


@contextlib.contextmanager
def _opened(path: Path, packed: bool) -> Iterator[BinaryIO]:
    with cast(BinaryIO, gzip.open(path, "wb")) if packed else path.open("wb") as stream:
        yield stream


def _check_names(batch: Batch) -> None:
    for name, _ in batch.attributes:
        if name in _RESERVED:
            raise UsageError(
                f"the attribute '{name}' has the name of a reserved column",
                hint="rename the attribute",
            )


def _single_kinds(batch: Batch) -> dict[str, Column]:
    """One column per name, as tables have them; topics may differ only as numbers do."""
    columns: dict[str, Column] = {}
    for (name, kind), column in batch.attributes.items():
        if name not in columns:
            columns[name] = column
            continue
        known = columns[name]
        kept = agreed(known.kind, kind)
        changed = kept is Kind.FLOAT and any(
            side.kind is Kind.INT and inexact_row(side) is not None for side in (known, column)
        )
        if kept is None or changed:
            raise UsageError(
                f"the attribute '{name}' is {known.kind} in one topic and {kind} in another, and "
                "a column of a table has one kind",
                hint="write JSON Lines, or each topic to a file of its own",
            )
        columns[name] = merged_column(kept, [(0, known), (0, column)], len(batch))
    return columns


def array_of(column: Column) -> Any:
    """A column of a batch as an Arrow array."""
    if column.kind is Kind.STRING:
        return _texts(column)
    if column.kind is Kind.NULL:
        return pa.nulls(len(column.values))
    mask = None if column.valid is None else ~column.valid
    return pa.array(column.values, _TYPES[column.kind], mask=mask)


def _texts(column: Column) -> Any:
    mask = None if column.valid is None else ~column.valid
    codes = pa.array(column.values, pa.int32(), mask=mask)
    return pa.array(column.dictionary, pa.string()).take(codes)


def _csv_table(batch: Batch) -> Any:
    """The table with times as ISO 8601 text, and with floats that stay floats when read."""
    table = to_arrow(batch)
    for index, field in enumerate(table.schema):
        values = table.column(index)
        if pa.types.is_timestamp(field.type):
            values = _csv_times(values)
        elif pa.types.is_float64(field.type) and values.null_count < len(values):
            texts = values.cast(pa.string())
            if pc.all(pc.match_substring_regex(texts, "^-?[0-9]+$")).as_py():
                values = pc.binary_join_element_wise(texts, ".0", "")
        table = table.set_column(index, field.name, values)
    return table


def _csv_times(values: Any) -> Any:
    instants = values.cast(pa.int64())
    if instants.null_count == len(instants):
        return pa.nulls(len(instants))
    bounds = pc.min_max(instants).as_py()
    if bounds["min"] < _FIRST or bounds["max"] > _LAST:
        return instants  # years that ISO 8601 text cannot hold
    texts = pc.strftime(instants.cast(pa.timestamp("us")), format="%Y-%m-%dT%H:%M:%S")
    return pc.binary_join_element_wise(texts, "Z", "")


def _json_lines(batch: Batch) -> Iterator[bytes]:
    _check_names(batch)
    columns = {key: _json_values(batch, key, column) for key, column in batch.attributes.items()}
    topics = [
        (topic.name, [(name, columns[name, kind]) for name, kind in topic.attributes.items()])
        for topic in batch.topics.values()
    ]
    sources = batch.source.dictionary
    encode = msgspec.json.Encoder().encode
    reserved = zip(
        batch.topic.tolist(),
        batch.source.values.tolist(),
        batch.seq.tolist(),
        batch.time.tolist(),
        strict=True,
    )
    for row, (topic, source, seq, time) in enumerate(reserved):
        name, attributes = topics[topic]
        record = {"topic": name, "source": sources[source], "seq": seq, "time": _json_time(time)}
        if batch.ids is not None and (batch.ids.valid is None or batch.ids.valid[row]):
            record["id"] = batch.id(row)
        for attribute, values in attributes:
            value = values[row]
            if value is not None:
                record[attribute] = value
        yield encode(record) + b"\n"


def _json_time(instant_us: int) -> str | int:
    return format_instant(instant_us) if _FIRST <= instant_us <= _LAST else instant_us


def _json_values(batch: Batch, key: tuple[str, Kind], column: Column) -> list[Any]:
    name, kind = key
    if kind is Kind.FLOAT:
        wrong = ~np.isfinite(column.values)
        if column.valid is not None:
            wrong &= column.valid
        if wrong.any():
            row = int(np.argmax(wrong))
            raise UsageError(
                f"the attribute '{name}' of event {batch.id(row)} is {column.values[row]}, and "
                "JSON has finite numbers only",
                hint="write Parquet, Arrow or CSV",
            )
    if kind is Kind.NULL:
        return [None] * len(column.values)
    values: list[Any] = column.values.tolist()
    if kind is Kind.STRING:
        values = [column.dictionary[code] if code >= 0 else None for code in values]
    elif kind is Kind.TIME:
        values = [_json_time(value) for value in values]
    if column.valid is not None:
        valid = column.valid.tolist()
        values = [value if own else None for value, own in zip(values, valid, strict=True)]
    return values
