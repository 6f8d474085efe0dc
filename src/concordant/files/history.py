"""Histories in files: JSON Lines for people, Parquet for tables; one row per step.

What is written is read back equal. A file that is no history is refused with its line. The rows of
several runs may stand in one file; `runs` takes them apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from concordant.errors import UsageError
from concordant.files.atomic import atomic_output
from concordant.model.event import Event
from concordant.model.history import Row
from concordant.model.kind import Value

_EXTENSIONS = (".jsonl", ".ndjson", ".parquet")
_TEXTS = pa.list_(pa.string())
_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("process", pa.string()),
        ("step", pa.string()),
        ("time_us", pa.int64()),
        ("subscription", pa.string()),
        ("text", pa.string()),
        ("topics", _TEXTS),
        ("events", _TEXTS),
        ("conjunction", pa.int32()),
        ("key", pa.string()),
        ("position", pa.int64()),
        ("in_order", pa.bool_()),
        ("level", pa.string()),
        ("event", pa.string()),
    ]
)
"""`key` and `event` are JSON: their kinds differ from row to row."""


def write_history(rows: Iterable[Row], path: Path, *, overwrite: bool = False) -> None:
    """Write a new file in the format of its extension; it appears only when it is whole."""
    suffix = _suffix(path)
    with atomic_output(path, overwrite=overwrite) as temporary:
        if suffix == ".parquet":
            pq.write_table(_table(rows), temporary)
            return
        encode = msgspec.json.Encoder().encode
        with temporary.open("wb") as stream:
            stream.writelines(encode(row) + b"\n" for row in rows)


def read_history(path: Path) -> list[Row]:
    """The rows of a file, in their order."""
    suffix = _suffix(path)
    try:
        return _from_parquet(path) if suffix == ".parquet" else _from_lines(path)
    except FileNotFoundError:
        raise UsageError("there is no such history", place=str(path)) from None
    except (OSError, pa.ArrowException) as error:
        raise UsageError(f"it cannot be read: {error}", place=str(path)) from None


def runs(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """The rows of each run, in their order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row.run, []).append(row)
    return found


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in _EXTENSIONS:
        raise UsageError(
            "the extension says nothing about a format of histories",
            hint=f"name it {', '.join(_EXTENSIONS)}",
            place=str(path),
        )
    return suffix


def _from_lines(path: Path) -> list[Row]:
    decode = msgspec.json.Decoder(Row).decode
    rows: list[Row] = []
    with path.open("rb") as stream:
        for number, line in enumerate(stream, 1):
            if not line.strip():
                continue
            try:
                rows.append(decode(line))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise UsageError(
                    f"the line is no row of a history: {error}",
                    hint="a history has one JSON object per line, as simulate --out writes it",
                    place=f"{path}:{number}",
                ) from None
    return rows


def _table(rows: Iterable[Row]) -> Any:
    encode = msgspec.json.encode
    columns: dict[str, list[Any]] = {name: [] for name in _SCHEMA.names}
    for row in rows:
        for name, column in columns.items():
            value = getattr(row, name)
            if name == "key":
                value = encode(value).decode() if value else None
            elif name == "event":
                value = encode(value).decode() if value is not None else None
            column.append(value)
    return pa.table(columns, schema=_SCHEMA)


def _from_parquet(path: Path) -> list[Row]:
    table = pq.read_table(path)
    missing = [name for name in ("run", "process", "step") if name not in table.column_names]
    if missing:
        raise UsageError(
            f"the table has no column {missing[0]!r}, so it is no history",
            hint="a history is what simulate --out writes",
            place=str(path),
        )
    return list(_parquet_rows(table, path))


def _parquet_rows(table: Any, path: Path) -> Iterator[Row]:
    key_decoder = msgspec.json.Decoder(tuple[Value, ...])
    event_decoder = msgspec.json.Decoder(Event)
    for number, record in enumerate(table.to_pylist(), 1):
        value = {name: one for name, one in record.items() if one is not None}
        try:
            if "key" in value:
                value["key"] = key_decoder.decode(value["key"])
            if "event" in value:
                value["event"] = event_decoder.decode(value["event"])
            yield msgspec.convert(value, Row)
        except msgspec.DecodeError as error:
            raise UsageError(
                f"row {number} is no row of a history: {error}", place=str(path)
            ) from None
