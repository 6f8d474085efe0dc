"""Files that the tasks read themselves: no row crosses from the JVM to Python before it is matched.

Every task scans all files, of each only the columns that travel, and keeps the rows of its own
partitions. With few tasks that costs less than moving every row through the JVM and a shuffle.
Where the input is anything but plain files, Parquet or CSV, that every task can see, or is too
large for that, rows travel as `normalise` says. Either way the answers are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from concordant.correlate.columns import Array
from concordant.errors import UsageError
from concordant.files.arrow import filled
from concordant.model.kind import Kind
from concordant.spark import csv, numbered
from concordant.spark.job import Job
from concordant.spark.layout import SubscriptionSet
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

_INSTANT = pa.timestamp("us")

_ZONE = "spark.sql.session.timeZone"
_UTC = ("UTC", "Etc/UTC", "GMT", "Z")
"""Zones in which a time without one is what it looks like."""

_TIME_PARSER = "spark.sql.legacy.timeParserPolicy"

_CORRUPT = "spark.sql.columnNameOfCorruptRecord"
"""Names the column, if there is one, into which Spark puts a line that it cannot read."""


@dataclass(frozen=True)
class Files:
    """One input as a task reads it."""

    paths: tuple[str, ...]
    name: str
    topic: str | None
    reserved: tuple[tuple[str, str], ...]
    """Roles and their columns."""
    attributes: tuple[tuple[str, Kind], ...]
    """Columns of attributes that travel, with their kinds."""
    layout: csv.Layout | None = None
    """How the lines of CSV files are cut."""
    csv_files: tuple[csv.CsvFile, ...] = ()
    """The same paths, looked at, where there is a layout."""

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
        looked_at = _looked_at(one, files)
        if isinstance(looked_at, str):
            return f"{one.name}: {looked_at}"
        found.append(looked_at[0])
        size += looked_at[1]
    if size > BYTES_MAX:
        return f"{size >> 20} MiB are more than {BYTES_MAX >> 20} MiB that workers would hold"
    return Scan(session, tuple(found), task_count)


def answers_of(scan: Scan, job: Job) -> DataFrame:
    """Everything that a job answers to the rows of files."""
    read = partial(_chunks, scan.inputs, scan.task_count)
    return numbered.answers_of(scan.session, scan.task_count, job, read)


def _chunks(inputs: Sequence[Files], task_count: int, number: int, job: Job) -> Iterator[Any]:
    table = in_total_order(rows_of(inputs, number, task_count, job))
    for start in range(0, table.num_rows, CHUNK):
        yield table.slice(start, CHUNK)


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


def _files(given: Input, job: Job) -> Files | str:
    if given.unreadable is not None:
        return "Spark sets rows aside that cannot be read"
    plan = given.frame._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return "it is no file as it is, but computed"
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return "it is no file"
    kind = str(relation.fileFormat().toString())
    if kind not in ("Parquet", "CSV"):
        return "only Parquet and CSV files are read by workers"
    if not relation.partitionSchema().isEmpty():
        return "its folders carry values"
    layout = _layout(given, relation) if kind == "CSV" else None
    if isinstance(layout, str):
        return layout
    paths = [urlparse(one) for one in given.frame.inputFiles()]
    if any(one.scheme not in ("", "file") for one in paths):
        return "its files are not on this machine"
    if len(paths) > FILE_COUNT_MAX:
        return f"{len(paths)} files are more than {FILE_COUNT_MAX}"
    found = _as_read(given, job, tuple(unquote(one.path) for one in paths), layout)
    known = _TYPES if layout is None else csv.TYPES
    types = {} if layout is None else dict(zip(layout.fields, layout.types, strict=True))
    for field in _fields(given, found):
        if len(field.path) > 1:
            return f"the column {'.'.join(field.path)} is nested"
        kind = field.type.simpleString()
        if types.get(field.path[0], kind) not in known:
            return f"the column {field.path[0]} has the type {kind}"
    if layout is None and given.reserved[TIME].type.simpleString() == "string":
        return "its times are text"
    return found


def _layout(given: Input, relation: Any) -> csv.Layout | str:
    """How the lines of a CSV file are cut, or what speaks against it."""
    session: Any = given.frame.sparkSession
    told = str(relation.options().mkString("\0"))  # at once: each call to the JVM costs
    options = dict(one.split(" -> ", 1) for one in told.split("\0") if " -> " in one)
    found = csv.cut_by(options)
    if isinstance(found, str):
        return found
    fields = given.frame.schema.fields
    names = tuple(field.name for field in fields)
    if session.conf.get(_CORRUPT) in names:
        return "Spark keeps rows that cannot be read"
    types = {field.name: field.dataType.simpleString() for field in fields}
    if "timestamp" in types.values() and session.conf.get(_TIME_PARSER).upper() == "LEGACY":
        return "Spark reads times in the way of its versions before 3"
    zone = session.conf.get(_ZONE)
    for name, kind in types.items():
        if kind == "timestamp":
            types[name] = "instant" if zone in _UTC else "zoned"
    moment = given.reserved[TIME]
    if types[moment.path[0]] == "string":
        types[moment.path[0]] = "instant"
    return csv.Layout(names, tuple(types[name] for name in names), *found)


def _as_read(given: Input, job: Job, paths: tuple[str, ...], layout: csv.Layout | None) -> Files:
    kinds = given.kinds()
    return Files(
        paths,
        given.name,
        given.topic,
        tuple((role, field.path[0]) for role, field in given.reserved.items()),
        tuple((name, kind) for name, kind in job.columns if kinds.get(name) is kind),
        layout,
    )


def _looked_at(given: Input, files: Files) -> tuple[Files, int] | str:
    """Files, and the bytes of what travels of them; or what speaks against reading them."""
    if files.layout is None:
        size = _size(given, files)
        return size if isinstance(size, str) else (files, size)
    size = 0
    for path in files.paths:
        with _opened(path):
            size += Path(path).stat().st_size
    if size > BYTES_MAX:
        return files, size
    found: list[csv.CsvFile] = []
    for path in files.paths:
        with _opened(path):
            one = csv.fit(path, files.layout, files.columns)
        if isinstance(one, str):
            return one
        found.append(one)
    return replace(files, csv_files=tuple(found)), size


def _size(given: Input, files: Files) -> int | str:
    """Bytes of the columns that travel, or what speaks against reading them."""
    wanted = {field.path[0]: field.type.simpleString() for field in _fields(given, files)}
    size = 0
    for path in files.paths:
        with _opened(path), pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            for name, kind in wanted.items():
                at = schema.get_field_index(name)
                if at < 0 or _value_type(schema.field(at).type) not in _TYPES[kind]:
                    return f"the files differ in the column {name}"
            groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
            for group in groups:
                columns = [group.column(n) for n in range(group.num_columns)]
                size += sum(
                    one.total_uncompressed_size for one in columns if one.path_in_schema in wanted
                )
    return size


def _value_type(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _fields(given: Input, files: Files) -> list[Field]:
    return [*given.reserved.values(), *(given.attributes[name] for name, _ in files.attributes)]


# --- rows of a file -------------------------------------------------------------------------------


def _pieces(given: Files, share: _Share) -> Iterator[Any]:
    """The rows of files, in pieces whose columns stay near the processor; texts may be codes.

    Where a line has to be read cell by cell, those come first that say whose it is.
    """
    if given.layout is None:
        for path in given.paths:
            with _opened(path):
                yield from _parquet(path, given.columns, given.id)
    else:
        for file in given.csv_files:
            with _opened(file.path):
                yield from csv.pieces(
                    file,
                    given.layout,
                    given.columns,
                    row_count=_PIECE,
                    by=[name for one in share.columns for name in given.read_for(one)],
                    chosen=partial(_chosen, given, share) if share.task_count > 1 else None,
                )


@contextmanager
def _opened(path: str) -> Iterator[None]:
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


def _parquet(path: str, columns: list[str], ids: str) -> Iterator[Any]:
    with pq.ParquetFile(path) as file:
        types = {one.name: one.type for one in file.schema_arrow}
    texts = [one for one in columns if one != ids and types.get(one) in _TYPES["string"]]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        for piece in file.iter_batches(_PIECE, columns=columns, use_threads=False):
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
    """Microseconds since 1970; what has no zone is UTC."""
    if pa.types.is_integer(values.type):
        return values.cast(pa.int64())
    if pa.types.is_timestamp(values.type) and values.type.tz is not None:
        return values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64())
    return values.cast(_INSTANT).cast(pa.int64())


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
