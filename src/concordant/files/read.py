"""The one door for reading: paths, tables, DataFrames, dicts and events to one checked batch.

Knows which reader takes which input and what an input is called; opens files and turns every
failure to do so into a `UsageError`. The formats themselves are in their own modules.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from concordant.correlate.columns import Batch
from concordant.errors import UsageError
from concordant.files.csv import csv_origin, read_csv
from concordant.files.formats import Format, format_of
from concordant.files.join import join
from concordant.files.jsonl import read_records
from concordant.files.order import first_unordered
from concordant.files.part import Names, Origin, Part
from concordant.files.rows import part_of_events, part_of_records
from concordant.files.table import as_table, is_table, part_of_table, reason
from concordant.model.event import Event

_FORMS = "a path, 'Topic=path', a table or DataFrame, an iterable of dicts or events, or a mapping "
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class _Input:
    """One input and its topic; `own_topic` if the topic was given for this input alone."""

    value: Any
    topic: str | None
    own_topic: bool
    name: str = ""


def read_events(
    *inputs: Any,
    topic: str | None = None,
    time: str = "time",
    source: str = "source",
    seq: str = "seq",
    id: str = "id",
    topic_column: str = "topic",
    ordered: bool = False,
) -> Batch:
    """The events of all inputs, in the order given, checked; `in_order` sorts them.

    An input is a path, a text `Topic=path`, a table or DataFrame, an iterable of dicts or of
    `Event`s, or a mapping from topic to any of these. `topic` is for inputs without a topic
    column; the other names say which columns to use. With `ordered` each input must itself be in
    the total order (time, source, seq); several such inputs still need `in_order`.

    >>> rows = [{"time": 2, "price": 10}, {"time": 1, "price": 11}]
    >>> [event.id for event in read_events(rows, topic="Quote").events()]
    ['table:1', 'table:2']
    """
    names = Names(topic=topic_column, source=source, seq=seq, time=time, id=id)
    if len(set(names.all)) < len(names.all):
        raise UsageError(
            "one column is named for two purposes",
            hint="time, source, seq, id and topic come from different columns",
        )
    found = list(_named(list(_inputs(inputs, topic, False))))
    if not found:
        raise UsageError("there is no input", hint=f"give {_FORMS}from topic to these")
    _refuse_twice(found)
    parts = [_read(each, names) for each in found]
    if ordered:
        for part in parts:
            _check_order(part)
    return join(parts)


def _inputs(values: Iterable[Any], topic: str | None, own: bool) -> Iterator[_Input]:
    for value in values:
        if isinstance(value, Mapping):
            for name, inner in value.items():
                if not isinstance(name, str) or not name:
                    raise UsageError(
                        f"the mapping has the key {name!r}, and its keys are names of topics",
                        hint="give {'Topic': input}",
                    )
                if isinstance(inner, Mapping):
                    raise UsageError(
                        f"the topic '{name}' holds a mapping instead of an input",
                        hint="give one event as a list of one dict",
                    )
                yield from _inputs([inner], name, True)
        elif isinstance(value, str) and "=" in value and not _exists(Path(value)):
            name, _, path = value.partition("=")
            if not name or not path:
                raise UsageError(f"{value!r} has an empty topic or path", hint="write 'Topic=path'")
            yield _Input(path, name, True)
        else:
            yield _Input(value, topic, own)


def _named(inputs: list[_Input]) -> Iterator[_Input]:
    memory = [each for each in inputs if not isinstance(each.value, str | os.PathLike)]
    number = 0
    for each in inputs:
        if isinstance(each.value, str | os.PathLike):
            name = Path(os.path.normpath(os.fspath(each.value))).as_posix()
        else:
            number += 1
            name = "table" if len(memory) == 1 else f"table{number}"
        yield _Input(each.value, each.topic, each.own_topic, name)


def _refuse_twice(inputs: Sequence[_Input]) -> None:
    """Each event is there once, so each file is given once, by whatever paths and links."""
    first: dict[tuple[int, int], str] = {}
    for each in inputs:
        if not isinstance(each.value, str | os.PathLike) or not _exists(Path(each.value)):
            continue
        status = Path(each.value).stat()
        if not stat.S_ISREG(status.st_mode):
            continue
        file = (status.st_dev, status.st_ino)
        if file in first:
            other = "" if first[file] == each.name else f": it is the file {first[file]}"
            raise UsageError(
                f"the input is given twice{other}; every event may be there once",
                hint="give it once",
                place=each.name,
            )
        first[file] = each.name


def _read(given: _Input, names: Names) -> Part:
    value = given.value
    if isinstance(value, str | os.PathLike):
        return _read_file(Path(value), given, names)
    origin = Origin(given.name, lambda row: row + 1)
    if is_table(value):
        return _table_part(as_table(value, given.name), origin, given, names)
    if not isinstance(value, Iterable) or isinstance(value, bytes):
        raise UsageError(
            f"a {type(value).__name__} is no input of events",
            hint=f"give {_FORMS}from topic to these",
            place=given.name,
        )
    rows = list(value)
    if rows and all(isinstance(row, Event) for row in rows):
        if given.own_topic:
            origin.refuse(
                f"the topic '{given.topic}' was given for events that have their own",
                hint="give the events without a topic",
            )
        return part_of_events(rows, origin)
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            origin.refuse(
                f"the row is a {type(row).__name__}; rows are all dicts, or all events",
                hint="give one mapping per event",
                row=number,
            )
    return part_of_records(
        rows,
        origin,
        names=names,
        topic=given.topic,
        own_topic=given.own_topic,
        numbers=np.arange(1, len(rows) + 1, dtype=np.int64),
    )


def _read_file(path: Path, given: _Input, names: Names) -> Part:
    name = given.name
    if _is_dir(path):
        raise UsageError("it is a directory", hint="give the files in it", place=name)
    try:
        kind, packed = format_of(path)
    except UsageError:
        if _exists(path):
            raise
        raise _missing(name) from None
    try:
        if kind in (Format.PARQUET, Format.ARROW):
            with _native(path) as native:
                table = _parquet(native) if kind is Format.PARQUET else _ipc(native)
            return _table_part(table, Origin(name, lambda row: row + 1), given, names)
        with _opened(path, packed) as stream:
            if kind is Format.JSON_LINES:
                return _json_part(stream, given, names)
            data = stream.read().removeprefix(_BOM)
            origin = csv_origin(name, data)
            return _table_part(read_csv(data, origin, names), origin, given, names, first=2)
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(name) from None
    except PermissionError:
        raise UsageError("it may not be read", hint="ask for permission", place=name) from None
    except (pa.ArrowException, EOFError, zlib.error, OSError, ValueError) as error:
        format_name = f"gzip ({kind})" if packed else str(kind)
        if not _exists(path):  # a name that no file can have
            raise _missing(name) from None
        if path.stat().st_size == 0:
            raise UsageError(
                "it is empty", hint="give a file with at least one event", place=name
            ) from None
        raise UsageError(
            f"it cannot be read as {format_name}: the file is damaged, cut off or of another "
            f"format ({reason(error)})",
            hint="write the file again, or give it the extension of its format",
            place=name,
        ) from None


def _opened(path: Path, packed: bool) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb")) if packed else path.open("rb")


def _native(path: Path) -> Any:
    # Not a file of Python: Arrow's threads may let go of it when Python is already ending, and
    # letting go of a Python object then aborts the process.
    return pa.OSFile(os.fsencode(path))


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # too long for a name, or behind a closed directory
        return False


def _is_dir(path: Path) -> bool:
    return _exists(path) and path.is_dir()


def _missing(name: str) -> UsageError:
    return UsageError("there is no such file", hint="check the path", place=name)


def _json_part(stream: BinaryIO, given: _Input, names: Names) -> Part:
    records, lines = read_records(stream, given.name)
    return part_of_records(
        records,
        Origin(given.name, lines.__getitem__),
        names=names,
        topic=given.topic,
        own_topic=given.own_topic,
        numbers=np.array(lines, np.int64),
    )


def _table_part(table: Any, origin: Origin, given: _Input, names: Names, first: int = 1) -> Part:
    return part_of_table(
        table, origin, names=names, topic=given.topic, own_topic=given.own_topic, first=first
    )


def _parquet(stream: Any) -> Any:
    return pq.ParquetFile(stream).read()


def _ipc(stream: Any) -> Any:
    try:
        return pa.ipc.open_file(stream).read_all()
    except pa.ArrowInvalid:  # the stream format has no footer
        stream.seek(0)
        return pa.ipc.open_stream(stream).read_all()


def _check_order(part: Part) -> None:
    row = first_unordered(part.batch)
    if row is not None:
        part.origin.refuse(
            f"event {part.batch.id(row)} stands after {part.batch.id(row - 1)}, but belongs before "
            "it; ordered input is sorted by time, then source, then seq",
            hint="leave out --ordered, and the events are sorted",
            row=row,
        )
