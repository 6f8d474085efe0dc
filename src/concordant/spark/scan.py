"""Files that the tasks read themselves: no row crosses from the JVM to Python before it is matched.

Every task scans all files, of each only the columns that travel, and keeps the rows of its own
partitions. With few tasks that costs less than moving every row through the JVM and a shuffle.
Which files they can read is for `readable` to say. Either way the answers are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from concordant.correlate.columns import Array
from concordant.errors import UsageError
from concordant.files.arrow import filled
from concordant.model.kind import INT_MAX, Kind
from concordant.spark import csv, numbered
from concordant.spark.job import Job
from concordant.spark.layout import SubscriptionSet
from concordant.spark.readable import TEXTS, Files, Scan
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
from concordant.spark.share import key_columns, owners
from concordant.spark.step import CHUNK, DICTIONARY_MAX, in_total_order
from concordant.spark.ties import in_chunks
from concordant.spark.unchanged import Unchanged, told

_PIECE = 1 << 17

_CODED = pa.dictionary(pa.int32(), pa.string())

_DAY_US = 86_400 * 1_000_000


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


# --- rows of a file -------------------------------------------------------------------------------


def _pieces(given: Files, share: _Share) -> Iterator[Any]:
    """The rows of files, in pieces whose columns stay near the processor; texts may be codes.

    Where a line has to be read cell by cell, those come first that say whose it is.
    """
    for file in given.files:
        with told(file.path):
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


def _chosen(given: Files, share: _Share, table: Any, count: int) -> Array:
    return share.of_any_set(_travelling(given, table, share, count, share.columns))


def _parquet(file: Unchanged, columns: list[str], ids: str) -> Iterator[Any]:
    with file.kept():
        with pq.ParquetFile(file.path) as opened:
            types = {one.name: one.type for one in opened.schema_arrow}
        texts = [one for one in columns if one != ids and types.get(one) in TEXTS]
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
