"""Files that the tasks read themselves: no row crosses from the JVM to Python before it is matched.

Every task scans all files, of each only the columns that travel, and keeps the rows of its own
partitions. With few tasks that costs less than moving every row through the JVM and a shuffle.
Where the input is anything but plain files, Parquet or CSV, that every task can see, or is too large
for that, rows travel as `normalise` says. Either way the answers are the same.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import unquote, urlparse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from concordant.correlate.columns import Array
from concordant.model.kind import Kind
from concordant.spark import csv, numbered
from concordant.spark.job import Job
from concordant.spark.layout import SubscriptionSet
from concordant.spark.rows import (
    ID,
    SEQ,
    SET,
    SOURCE,
    TIME,
    TOPIC,
    attribute_column,
    row_schema,
    without_own_ids,
)
from concordant.spark.schema import Field, Input
from concordant.spark.share import owners
from concordant.spark.step import CHUNK, DICTIONARY_MAX, in_total_order

TASK_COUNT_MAX = 8
"""With more tasks, each reading everything costs more than a shuffle."""

BYTES_MAX = 1 << 29
"""Of the columns that travel, unpacked: a task holds its share of them."""

FILE_COUNT_MAX = 1_000
"""Files whose footers are read before the job starts."""

_PIECE = 1 << 16

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

_CORRUPT = "spark.sql.columnNameOfCorruptRecord"
"""Names the column, if there is one, into which Spark puts a line that it cannot read."""


@dataclass(frozen=True)
class Files:
    """One input as a task reads it."""

    paths: tuple[str, ...] | tuple[csv.CsvFile, ...]
    name: str
    topic: str | None
    reserved: tuple[tuple[str, str], ...]
    """Roles and their columns."""
    attributes: tuple[tuple[str, Kind], ...]
    """Columns of attributes that travel, with their kinds."""
    layout: csv.Layout | None = None
    """How lines are cut; of Parquet files there is nothing to say."""

    @property
    def columns(self) -> list[str]:
        """What is read, each once."""
        names = [*(name for _, name in self.reserved), *(name for name, _ in self.attributes)]
        return list(dict.fromkeys(names))

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
    schema = _scanned_schema(job)
    found = [schema.empty_table()]
    for one in inputs:
        for rows in (_travelling(one, piece, job) for piece in _pieces(one)):
            for index, subscriptions in enumerate(job.sets):
                mine = _wanted(rows, subscriptions, job)
                if task_count > 1:
                    mine &= owners(rows, job, index, task_count) == number
                kept = without_own_ids(rows.filter(pa.array(mine)))
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
    for field in _fields(given, found):
        if len(field.path) > 1:
            return f"the column {'.'.join(field.path)} is nested"
        if field.type.simpleString() not in known:
            return f"the column {field.path[0]} has the type {field.type.simpleString()}"
    if given.reserved[TIME].type.simpleString() == "string":
        return "its times are text"
    return found


def _layout(given: Input, relation: Any) -> csv.Layout | str:
    """How the lines of a CSV file are cut, or what speaks against it."""
    session = given.frame.sparkSession
    options = dict(session._jvm.scala.jdk.javaapi.CollectionConverters.asJava(relation.options()))
    found = csv.cut_by(options)
    if isinstance(found, str):
        return found
    fields = given.frame.schema.fields
    if session.conf.get(_CORRUPT) in (field.name for field in fields):
        return "Spark keeps rows that cannot be read"
    names = tuple(field.name for field in fields)
    return csv.Layout(names, tuple(field.dataType.simpleString() for field in fields), *found)


def _as_read(
    given: Input, job: Job, paths: tuple[str, ...], layout: csv.Layout | None
) -> Files:
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
    size = sum(os.path.getsize(path) for path in files.paths)
    if size > BYTES_MAX:
        return files, size
    found = []
    for path in files.paths:
        one = csv.fit(path)
        if isinstance(one, str):
            return one
        found.append(one)
    return replace(files, paths=tuple(found)), size


def _size(given: Input, files: Files) -> int | str:
    """Bytes of the columns that travel, or what speaks against reading them."""
    wanted = {field.path[0]: field.type.simpleString() for field in _fields(given, files)}
    size = 0
    for path in files.paths:
        with pq.ParquetFile(path) as file:
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


def _pieces(given: Files) -> Iterator[Any]:
    """The rows of files, in pieces whose columns stay near the processor; texts may be codes."""
    for path in given.paths:
        if given.layout is None:
            yield from _parquet(str(path), given.columns, given.id)
        else:
            assert isinstance(path, csv.CsvFile)
            yield from csv.pieces(path, given.layout, given.columns, _PIECE)


def _parquet(path: str, columns: list[str], ids: str) -> Iterator[Any]:
    with pq.ParquetFile(path) as file:
        types = {one.name: one.type for one in file.schema_arrow}
    texts = [one for one in columns if one != ids and types.get(one) in _TYPES["string"]]
    with pq.ParquetFile(path, read_dictionary=texts) as file:
        for piece in file.iter_batches(_PIECE, columns=columns, use_threads=False):
            yield pa.table(piece).select(columns)


def _travelling(given: Files, table: Any, job: Job) -> Any:
    """Rows of a file in the columns in which they travel; the set is still missing."""
    reserved = dict(given.reserved)
    count = table.num_rows
    if SOURCE in reserved:
        source = _coded(table.column(reserved[SOURCE]), blank_is_null=True)
    else:
        source = _constant(given.name, pa.string(), count).dictionary_encode()
    columns = {
        TOPIC: _codes(
            table.column(reserved[TOPIC]) if TOPIC in reserved else given.topic, job, count
        ),
        SOURCE: source,
        SEQ: table.column(reserved[SEQ]).cast(pa.int64()),
        TIME: _instants(table.column(reserved[TIME])),
        ID: _texts(table.column(given.id)) if given.id else pa.nulls(count, pa.string()),
    }
    schema = _scanned_schema(job)
    for name, kind in job.columns:
        column = attribute_column(name, kind)
        if (name, kind) not in given.attributes:
            columns[column] = pa.nulls(count, schema.field(column).type)
        elif kind is Kind.TIME:
            columns[column] = _instants(table.column(name))
        elif kind is Kind.STRING:
            columns[column] = _coded(table.column(name))
        else:
            columns[column] = _plain(table.column(name)).cast(schema.field(column).type)
    return pa.table(columns)


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


def _constant(value: Any, kind: Any, count: int) -> Any:
    return pa.nulls(count, kind).fill_null(value)


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
        return _constant(code if code >= 0 else unknown, pa.int32(), count)
    if pa.types.is_dictionary(topics.type):
        chunks = [_codes(c.dictionary, job, count).take(c.indices) for c in topics.chunks]
        return pa.chunked_array(chunks, pa.int32())
    topics = topics.cast(pa.string())
    codes = pc.fill_null(pc.index_in(topics, value_set=known), unknown)
    missing = pc.or_kleene(pc.is_null(topics), pc.equal(topics, ""))
    return pc.if_else(missing, None, codes)


# --- whose rows -----------------------------------------------------------------------------------


def _wanted(rows: Any, one: SubscriptionSet, job: Job) -> Array:
    """Rows of topics that a set reads, and rows without a topic, which somebody has to tell."""
    heard = any(each.name not in job.muted for each in one.subscriptions)
    names = one.topics if heard else ()
    codes = [code for code, topic in enumerate(job.topics) if topic.name in names]
    topics = rows.column(TOPIC)
    wanted = pc.is_in(topics, value_set=pa.array([*codes, None], pa.int32()))
    found: Array = np.array(wanted.to_numpy())
    return found
