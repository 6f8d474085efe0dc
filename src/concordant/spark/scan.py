"""Files that the tasks read themselves: no row crosses from the JVM to Python before it is matched.

Every task scans all files, of each only the columns that travel, and keeps the rows of its own
partitions. With few tasks that costs less than moving every row through the JVM and a shuffle.
Where the input is anything but plain files, Parquet or CSV, that every task can see, or is too
large for that, rows travel as `normalise` says. Either way the answers are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from concordant.correlate.columns import Array
from concordant.errors import UsageError
from concordant.files.arrow import filled
from concordant.model.kind import INT_MAX, Kind
from concordant.spark import csv, numbered
from concordant.spark.job import Job
from concordant.spark.layout import SubscriptionSet
from concordant.spark.listed import Listed, listed
from concordant.spark.rows import (
    ID,
    SET,
    SOURCE,
    TIME,
    TOPIC,
    attribute_column,
    row_schema,
    without_own_ids,
)
from concordant.spark.schema import Field, Input
from concordant.spark.share import key_columns, owners
from concordant.spark.step import CHUNK, DICTIONARY_MAX, in_total_order
from concordant.spark.ties import in_chunks
from concordant.spark.unchanged import Unchanged, looked_at

TASK_COUNT_MAX = 8
"""With more tasks, each reading everything costs more than a shuffle."""

BYTES_MAX = 1 << 29
"""Of the columns that travel, unpacked: a task holds its share of them."""

FILE_COUNT_MAX = 1_000
"""Files whose footers are read before the job starts."""

_PIECE = 1 << 17

_CODED = pa.dictionary(pa.int32(), pa.string())

_TYPES = {
    "boolean": (pa.bool_(),),
    "tinyint": (pa.int8(),),
    "smallint": (pa.int16(),),
    "int": (pa.int32(),),
    "bigint": (pa.int64(),),
    "float": (pa.float32(),),
    "double": (pa.float64(),),
    "string": (pa.string(), pa.large_string()),
    "date": (pa.date32(),),
    "timestamp": (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
    "timestamp_ntz": (pa.timestamp("us"), pa.timestamp("ms")),
}
"""Types of Spark, and of Arrow for the same column of a file."""

_DAY_US = 86_400 * 1_000_000

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


def answers_of(scan: Scan, job: Job) -> DataFrame:
    """Everything that a job answers to the rows of files."""
    read = partial(_chunks, scan.inputs, scan.task_count)
    return numbered.answers_of(scan.session, scan.task_count, job, read)


def _chunks(inputs: Sequence[Files], task_count: int, number: int, job: Job) -> Iterator[Any]:
    return in_chunks(in_total_order(rows_of(inputs, number, task_count, job)), CHUNK)


def rows_of(inputs: Sequence[Files], number: int, task_count: int, job: Job) -> Any:
    """The travelling rows of files that belong to one task."""
    share = _Share(number, task_count, job)
    schema = share.schema
    found = [schema.empty_table()]
    for one in inputs:
        for piece in _pieces(one, share):
            rows = _travelling(one, piece, share, piece.num_rows)
            for index in range(len(job.sets)):
                kept = rows
                if one.layout is None or not share.is_told:
                    kept = rows.filter(pa.array(share.of_set(rows, index)))
                kept = without_own_ids(kept)
                chosen = pa.array(np.full(kept.num_rows, index, np.int32))
                found.append(kept.add_column(0, SET, chosen).cast(schema))
    return _without_long_dictionaries(pa.concat_tables(found).unify_dictionaries())


def _scanned_schema(job: Job) -> Any:
    """Travelling rows whose texts are codes and a dictionary, which is what the kernel wants."""
    fields = [
        pa.field(one.name, _CODED) if one.type == pa.string() and one.name != ID else one
        for one in row_schema(job)
    ]
    return pa.schema(fields)


def _without_long_dictionaries(table: Any) -> Any:
    """Texts that hardly ever come again are texts: each chunk would carry all of them along."""
    for index, field in enumerate(table.schema):
        if field.type == _CODED and len(table.column(index).chunk(0).dictionary) > DICTIONARY_MAX:
            table = table.set_column(index, field.name, table.column(index).cast(pa.string()))
    return table.combine_chunks()


# --- what can be read -----------------------------------------------------------------------------


def _files(given: Input, job: Job) -> tuple[Files, int] | str:
    """Files, and the bytes of what travels of them; or what speaks against reading them."""
    if given.unreadable is not None:
        return "Spark sets rows aside that cannot be read"
    found = listed(given.frame)
    if isinstance(found, str):
        return found
    if len(found.paths) > FILE_COUNT_MAX:
        return f"{len(found.paths)} files are more than {FILE_COUNT_MAX}"
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
        with _told(path):
            looks.append(looked_at(path))
    size = sum(one.size for one in looks)
    if size != found.size:
        return "its files have changed since Spark listed them"
    looks = [one for one in looks if one.size]
    if files.layout is None:
        size = 0
        wanted = {field.path[0]: field.type.simpleString() for field in _fields(given, files)}
        for one in looks:
            with _told(one.path):
                more = _size(one, wanted)
            if isinstance(more, str):
                return more
            size += more
    elif size <= BYTES_MAX:
        for one in looks:
            with _told(one.path):
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


# --- rows of a file -------------------------------------------------------------------------------


def _pieces(given: Files, share: _Share) -> Iterator[Any]:
    """The rows of files, in pieces whose columns stay near the processor; texts may be codes.

    Where a line has to be read cell by cell, those come first that say whose it is.
    """
    for file in given.files:
        with _told(file.path):
            if given.layout is None:
                yield from _parquet(file, given.columns, given.id)
                continue
            yield from csv.pieces(
                file,
                given.layout,
                given.columns,
                row_count=_PIECE,
                by=[name for one in share.columns for name in given.read_for(one)],
                chosen=partial(_chosen, given, share) if share.task_count > 1 else None,
            )


@contextmanager
def _told(path: str) -> Iterator[None]:
    """What is wrong with a file that Spark has seen is told with its path."""
    hint = "make the DataFrame anew, from files that are whole and stay as they are"
    try:
        yield
    except FileNotFoundError:
        raise UsageError(f"{path} is gone since the DataFrame was made", hint=hint) from None
    except (OSError, pa.ArrowInvalid) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint=hint) from error


def _chosen(given: Files, share: _Share, table: Any, count: int) -> Array:
    return share.of_any_set(_travelling(given, table, share, count, share.columns))


def _parquet(file: Unchanged, columns: list[str], ids: str) -> Iterator[Any]:
    with file.kept():
        with pq.ParquetFile(file.path) as opened:
            types = {one.name: one.type for one in opened.schema_arrow}
        texts = [one for one in columns if one != ids and types.get(one) in _TYPES["string"]]
        with pq.ParquetFile(file.path, read_dictionary=texts) as opened:
            for piece in opened.iter_batches(_PIECE, columns=columns, use_threads=False):
                yield pa.table(piece).select(columns)


def _travelling(
    given: Files, table: Any, share: _Share, count: int, names: Sequence[str] | None = None
) -> Any:
    """Rows of a file in the columns in which they travel, or some; the set is still missing.

    They are so many: a table without columns does not know it.
    """
    wanted = [name for name in share.schema.names if name != SET] if names is None else names
    return pa.table({name: _column(given, table, name, share, count) for name in wanted})


def _column(given: Files, table: Any, name: str, share: _Share, count: int) -> Any:
    """One column in which rows travel."""
    read = given.read_for(name)
    values = table.column(read[0]) if read else None
    if name == TOPIC:
        return _codes(given.topic if values is None else values, share.job, count)
    if name == SOURCE:
        if values is None:
            codes = pa.array(np.zeros(count, np.int32))
            return pa.DictionaryArray.from_arrays(codes, pa.array([given.name]))
        return _coded(values, blank_is_null=True)
    kind = share.schema.field(name).type
    if values is None:
        return pa.nulls(count, kind)
    if name == ID:
        return _texts(values)
    if name == TIME or name.startswith(attribute_column("", Kind.TIME)):
        return _instants(values)
    return _coded(values) if kind == _CODED else _plain(values).cast(kind)


def _plain(values: Any) -> Any:
    return values.cast(values.type.value_type) if pa.types.is_dictionary(values.type) else values


def _texts(values: Any) -> Any:
    return _plain(values).cast(pa.string())


def _coded(values: Any, *, blank_is_null: bool = False) -> Any:
    """Texts as codes and a dictionary that holds each of them once, and no null."""
    if not pa.types.is_dictionary(values.type):
        values = values.cast(pa.string()).dictionary_encode()
    for chunk in values.chunks:
        known = chunk.dictionary
        blank = blank_is_null and pc.index(known, pa.scalar("", known.type)).as_py() >= 0
        if blank or known.null_count or len(known.unique()) < len(known):
            texts = _texts(values)
            if blank_is_null:
                texts = pc.if_else(pc.equal(texts, ""), None, texts)
            return texts.dictionary_encode()
    return values


def _instants(values: Any) -> Any:
    """Microseconds since 1970; what has no zone is UTC. Days beyond them are null, as they are by
    the way of Spark, which fails at times beyond them."""
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.int64())
    if pa.types.is_date(kind):
        days = values.cast(pa.int32()).cast(pa.int64())
        fits = pc.less_equal(pc.abs(days), INT_MAX // _DAY_US)
        return pc.multiply(pc.if_else(fits, days, None), _DAY_US)
    try:
        return values.cast(pa.timestamp("us", kind.tz)).cast(pa.int64())
    except pa.ArrowInvalid:
        raise UsageError(
            "a time does not fit 64 bits of microseconds", hint="correct the row, or drop it"
        ) from None


def _codes(topics: Any, job: Job, count: int) -> Any:
    """Topics as codes; a topic that nobody asks for has none, and is no row without a topic."""
    unknown = len(job.topics)
    known = pa.array([topic.name for topic in job.topics], pa.string())
    if isinstance(topics, str):
        code = pc.index(known, topics).as_py()
        return pa.array(np.full(count, code if code >= 0 else unknown, np.int32))
    if pa.types.is_dictionary(topics.type):
        chunks = [_codes(c.dictionary, job, count).take(c.indices) for c in topics.chunks]
        return pa.chunked_array(chunks, pa.int32())
    topics = topics.cast(pa.string())
    codes = pc.fill_null(pc.index_in(topics, value_set=known), unknown)
    missing = pc.or_kleene(pc.is_null(topics), pc.equal(topics, ""))
    return pc.if_else(missing, None, codes)


# --- whose rows -----------------------------------------------------------------------------------


class _Share:
    """The rows that one of several tasks keeps."""

    def __init__(self, number: int, task_count: int, job: Job) -> None:
        self.number, self.task_count, self.job = number, task_count, job
        self.schema = _scanned_schema(job)
        keys = [name for index in range(len(job.sets)) for name in key_columns(job, index)]
        self.columns = list(dict.fromkeys([TOPIC, *keys]))
        """Those of travelling rows that say whose they are."""
        self.is_told = task_count > 1 and len(job.sets) == 1
        """Have rows of this task's only set been chosen when they were read?"""

    def of_set(self, rows: Any, index: int) -> Array:
        """Which rows a set of subscriptions has in this task."""
        mine = _wanted(rows, self.job.sets[index], self.job)
        if self.task_count > 1:
            mine &= owners(rows, self.job, index, self.task_count) == self.number
        return mine

    def of_any_set(self, rows: Any) -> Array:
        """Which rows this task has for any of them."""
        found: Array = np.logical_or.reduce(
            [self.of_set(rows, index) for index in range(len(self.job.sets))]
        )
        return found


def _wanted(rows: Any, one: SubscriptionSet, job: Job) -> Array:
    """Rows of topics that a set reads, and rows without a topic, which somebody has to tell."""
    heard = any(each.name not in job.muted for each in one.subscriptions)
    names = one.topics if heard else ()
    is_wanted = [topic.name in names for topic in job.topics]
    by_code = np.array([*is_wanted, False, True])  # a topic that nobody asks for; none
    found: Array = by_code[filled(rows.column(TOPIC), -1).to_numpy()]
    return found
