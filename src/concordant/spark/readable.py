"""Which inputs the tasks can read themselves, or what speaks against it.

Where the input is anything but plain files, Parquet or CSV, that every task can see and reads cell
by cell as Spark would, or is too large for that, rows travel as `normalise` says. Looks at
sessions, schemas and files before a job starts; reads no row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from concordant.model.kind import Kind
from concordant.spark import csv, numbered
from concordant.spark.job import Job
from concordant.spark.listed import Listed, is_read, listed
from concordant.spark.rows import ID, TIME, attribute_column
from concordant.spark.schema import Field, Input
from concordant.spark.unchanged import Unchanged, looked_at, told

TASK_COUNT_MAX = 8
"""With more tasks, each reading everything costs more than a shuffle."""

BYTES_MAX = 1 << 29
"""Of the columns that travel, unpacked: a task holds its share of them."""

TEXTS = (pa.string(), pa.large_string())

_TYPES = {
    "boolean": (pa.bool_(),),
    "tinyint": (pa.int8(),),
    "smallint": (pa.int16(),),
    "int": (pa.int32(),),
    "bigint": (pa.int64(),),
    "float": (pa.float32(),),
    "double": (pa.float64(),),
    "string": TEXTS,
    "date": (pa.date32(),),
    "timestamp": (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
    "timestamp_ntz": (pa.timestamp("us"), pa.timestamp("ms")),
}
"""Types of Spark, and of Arrow for the same column of a file."""

_ZONE = "spark.sql.session.timeZone"
_UTC = ("UTC", "Etc/UTC", "GMT", "Z")
"""Zones in which a time without one is what it looks like."""

_WAYS = frozenset({"EXISTS_DEFAULT", "parquet.field.id"})
"""What Spark may be told of a column: a value for missing cells, and its number in the files."""

_REBASE = "spark.sql.parquet.datetimeRebaseModeInRead"
_REBASED = frozenset({"date", "timestamp", "timestamp_ntz"})
"""Types of days that Spark may read by another calendar, where it is told to or the file is old."""

_OLD_TIMES = "Spark reads times in the way of its versions before 3"

_TIME_PARSER = "spark.sql.legacy.timeParserPolicy"

_CORRUPT = "spark.sql.columnNameOfCorruptRecord"
"""Names the column, if there is one, into which Spark puts a line that it cannot read."""


@dataclass(frozen=True)
class Files:
    """One input as a task reads it."""

    name: str
    topic: str | None
    reserved: tuple[tuple[str, str], ...]
    """Roles and their columns."""
    attributes: tuple[tuple[str, Kind], ...]
    """Columns of attributes that travel, with their kinds."""
    layout: csv.Layout | None = None
    """How the lines of CSV files are cut."""
    files: tuple[Unchanged, ...] = ()
    """Those that hold anything, as they were when they were looked at."""

    @property
    def columns(self) -> list[str]:
        """What is read, each once."""
        names = [*(name for _, name in self.reserved), *(name for name, _ in self.attributes)]
        return list(dict.fromkeys(names))

    def read_for(self, name: str) -> list[str]:
        """The column that a column of travelling rows is made of; none where there is none."""
        reserved = dict(self.reserved)
        columns = {attribute_column(one, kind): one for one, kind in self.attributes}
        return [one for one in (reserved.get(name, columns.get(name)),) if one is not None]

    @property
    def id(self) -> str:
        """The column of ids, if there is one."""
        return dict(self.reserved).get(ID, "")


@dataclass(frozen=True)
class Scan:
    """What the tasks read, and how many they are."""

    session: SparkSession
    inputs: tuple[Files, ...]
    task_count: int


def scan_of(inputs: Sequence[Input], job: Job) -> Scan | str:
    """How tasks could read the inputs themselves, or why they do not."""
    session = inputs[0].frame.sparkSession
    task_count = numbered.task_count(session, job)
    if isinstance(task_count, str):
        return task_count
    if task_count > TASK_COUNT_MAX:
        return f"{task_count} tasks would each read every file, and {TASK_COUNT_MAX} may"
    found: list[Files] = []
    size = 0
    for one in inputs:
        files = _files(one, job)
        if isinstance(files, str):
            return f"{one.name}: {files}"
        found.append(files[0])
        size += files[1]
    if size > BYTES_MAX:
        return f"{size >> 20} MiB are more than {BYTES_MAX >> 20} MiB that workers would hold"
    return Scan(session, tuple(found), task_count)


def _files(given: Input, job: Job) -> tuple[Files, int] | str:
    """Files, and the bytes of what travels of them; or what speaks against reading them."""
    if given.unreadable is not None:
        return "Spark sets rows aside that cannot be read"
    found = listed(given.frame)
    if isinstance(found, str):
        return found
    layout = _layout(given, found) if found.form == "CSV" else None
    if isinstance(layout, str):
        return layout
    files = _as_read(given, job, layout)
    known = _TYPES if layout is None else csv.TYPES
    types = {} if layout is None else dict(zip(layout.fields, layout.types, strict=True))
    for field in _fields(given, files):
        if len(field.path) > 1:
            return f"the column {'.'.join(field.path)} is nested"
        kind = field.type.simpleString()
        if types.get(field.path[0], kind) not in known:
            return f"the column {field.path[0]} has the type {kind}"
        if _WAYS & given.frame.schema[field.path[0]].metadata.keys():
            return f"Spark reads the column {field.path[0]} in a way of its own"
    if layout is None and (why := _speaks_against_parquet(given, files, found)):
        return why
    return _looked_at(given, files, found)


def _speaks_against_parquet(given: Input, files: Files, found: Listed) -> str:
    if strange := found.options.keys() - {"mergeschema"}:
        return f"it is read with the option {min(strange)}"
    session: Any = given.frame.sparkSession
    if given.reserved[TIME].type.simpleString() == "string":
        return "its times are text"
    kinds = {field.type.simpleString() for field in _fields(given, files)}
    if kinds & _REBASED and session.conf.get(_REBASE).upper() != "CORRECTED":
        return _OLD_TIMES
    return ""


def _layout(given: Input, found: Listed) -> csv.Layout | str:
    """How the lines of a CSV file are cut, or what speaks against it."""
    session: Any = given.frame.sparkSession
    cut = csv.cut_by(found.options)
    if isinstance(cut, str):
        return cut
    fields = given.frame.schema.fields
    names = tuple(field.name for field in fields)
    if session.conf.get(_CORRUPT) in names:
        return "Spark keeps rows that cannot be read"
    types = {field.name: field.dataType.simpleString() for field in fields}
    if "timestamp" in types.values() and session.conf.get(_TIME_PARSER).upper() == "LEGACY":
        return _OLD_TIMES
    zone = session.conf.get(_ZONE)
    for name, kind in types.items():
        if kind == "timestamp":
            types[name] = "instant" if zone in _UTC else "zoned"
    moment = given.reserved[TIME]
    if types[moment.path[0]] == "string":
        types[moment.path[0]] = "instant"
    return csv.Layout(names, tuple(types[name] for name in names), *cut)


def _as_read(given: Input, job: Job, layout: csv.Layout | None) -> Files:
    kinds = given.kinds()
    return Files(
        given.name,
        given.topic,
        tuple((role, field.path[0]) for role, field in given.reserved.items()),
        tuple((name, kind) for name, kind in job.columns if kinds.get(name) is kind),
        layout,
    )


def _looked_at(given: Input, files: Files, found: Listed) -> tuple[Files, int] | str:
    looks: list[Unchanged] = []
    for path in found.paths:
        with told(path):
            looks.append(looked_at(path))
    size = sum(one.size for one in looks)
    if size != found.size:
        return "its files have changed since Spark listed them"
    looks = [one for one in looks if one.size and is_read(one.path)]
    if files.layout is None:
        size = 0
        wanted = {field.path[0]: field.type.simpleString() for field in _fields(given, files)}
        for one in looks:
            with told(one.path):
                more = _size(one, wanted)
            if isinstance(more, str):
                return more
            size += more
    elif size <= BYTES_MAX:
        for one in looks:
            with told(one.path):
                if why := csv.unfit(one, files.layout, files.columns):
                    return why
    return replace(files, files=tuple(looks)), size


def _size(file: Unchanged, wanted: Mapping[str, str]) -> int | str:
    """Bytes of the columns that travel, or what speaks against reading them."""
    name = Path(file.path).name
    with file.kept(), pq.ParquetFile(file.path) as opened:
        schema, metadata = opened.schema_arrow, opened.metadata
        for column, kind in wanted.items():
            if column not in schema.names:
                return f"{name} has no column {column}"
            if [one.lower() for one in schema.names].count(column.lower()) > 1:
                return f"{name} has several columns {column}"
            if _value_type(schema.field(column).type) not in _TYPES[kind]:
                return f"{name} has the column {column} as {schema.field(column).type}"
        if _REBASED & set(wanted.values()) and _has_old_times(metadata.metadata or {}):
            return _OLD_TIMES
        groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
        columns = [group.column(n) for group in groups for n in range(group.num_columns)]
        sizes = (c.total_uncompressed_size for c in columns if c.path_in_schema in wanted)
        return int(sum(sizes))


def _has_old_times(told: Mapping[bytes, bytes]) -> bool:
    """Days that are counted by the calendar of Spark before 3, which it converts."""
    version = told.get(b"org.apache.spark.version", b"3")
    return version.split(b".")[0] in (b"1", b"2") or b"org.apache.spark.legacyDateTime" in told


def _value_type(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _fields(given: Input, files: Files) -> list[Field]:
    return [*given.reserved.values(), *(given.attributes[name] for name, _ in files.attributes)]
