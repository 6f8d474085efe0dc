"""A batch of this process, laid down for the tasks: each finds its own rows in a file of its own.

The events are columns already, checked and in order, so they are parted here, once: a task reads
what it matches and nothing else, hashes nothing and sorts nothing. Knows Arrow and files; that the
tasks see the folder (a local master) is for the caller to know.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from concordant.correlate.columns import Array, Batch, Column
from concordant.files.write import array_of
from concordant.model.kind import Kind
from concordant.spark.job import Job
from concordant.spark.rows import (
    ID,
    SEQ,
    SET,
    SOURCE,
    TIME,
    TOPIC,
    attribute_column,
    gathered,
    without_own_ids,
)
from concordant.spark.share import owners
from concordant.spark.step import CHUNK, DICTIONARY_MAX

_CODE = np.int16
"""Of topics and texts: enough for `TOPIC_COUNT_MAX` and `DICTIONARY_MAX`."""


def write_shares(batch: Batch, job: Job, folder: Path, task_count: int) -> None:
    """The rows of an ordered batch that a job wants, to a file per task."""
    rows = _travelling(batch, job)
    schema = rows.schema.insert(0, pa.field(SET, pa.int32()))
    tasks = [
        np.zeros(0, _CODE) if task_count == 1 else owners(rows, job, index, task_count)
        for index in range(len(job.sets))
    ]
    with ExitStack() as stack:
        files = [
            stack.enter_context(pa.ipc.new_stream(_path(folder, number), schema))
            for number in range(task_count)
        ]
        for start in range(0, rows.num_rows, CHUNK):  # in pieces that stay near the processor
            for index, task in enumerate(tasks):
                piece = rows.slice(start, CHUNK)
                chosen = pa.array(np.full(piece.num_rows, index, np.int32))
                piece = piece.add_column(0, schema.field(0), chosen)
                parts = _parted(piece, task[start : start + CHUNK], job.sets[index].topics, job)
                for number, part in parts:
                    files[number].write_table(part)


def share(folder: Path, number: int, _: Job) -> Iterator[Any]:
    """The rows of the task with a number, chunk after chunk."""
    with pa.OSFile(_path(folder, number)) as file:
        yield from map(pa.Table.from_batches, gathered(pa.ipc.open_stream(file), CHUNK))


def _path(folder: Path, number: int) -> str:
    return str(folder / f"{number}.arrow")


def _travelling(batch: Batch, job: Job) -> Any:
    """The events of topics that somebody reads in the columns in which rows travel."""
    codes = {topic.name: code for code, topic in enumerate(job.topics)}
    recode = np.array([codes.get(name, -1) for name in batch.topic_names], _CODE)
    if (recode < 0).any():
        batch = batch.take(recode[batch.topic] >= 0)
    columns = {
        TOPIC: pa.array(recode[batch.topic]),
        SOURCE: _array(batch.source),
        SEQ: pa.array(batch.seq),
        TIME: pa.array(batch.time),
        ID: pa.nulls(len(batch)) if batch.ids is None else array_of(batch.ids),
    }
    for name, kind in job.columns:
        columns[attribute_column(name, kind)] = _array(batch.attributes[name, kind])
    table = pa.table(columns)
    return table if batch.ids is None else without_own_ids(table)


def _array(column: Column) -> Any:
    """Texts as codes unless nearly every one is another; times as numbers."""
    mask = None if column.valid is None else ~column.valid
    if column.kind is not Kind.STRING:
        return pa.array(column.values, mask=mask)
    if len(column.dictionary) > DICTIONARY_MAX:
        return array_of(column)
    codes = pa.array(column.values.astype(_CODE), mask=mask)
    return pa.DictionaryArray.from_arrays(codes, pa.array(column.dictionary, pa.string()))


def _parted(piece: Any, task: Array, topics: Sequence[str], job: Job) -> Iterator[tuple[int, Any]]:
    """The rows of a piece that have a topic of these, by their task; no tasks: all are the first's.

    Sorted by task once, however many there are; a stable sort keeps the order of each.
    """
    read = np.array([topic.name in topics for topic in job.topics])
    if not read.all():
        mine = read[piece.column(TOPIC).to_numpy()]
        piece, task = piece.filter(pa.array(mine)), task[mine] if len(task) else task
    if not len(task):
        yield 0, piece
        return
    order = np.argsort(task, kind="stable")
    piece, task = piece.take(pa.array(order)), task[order]
    ends = [*(np.flatnonzero(np.diff(task)) + 1), len(task)]
    for start, end in pairwise([0, *ends]):
        yield int(task[start]), piece.slice(start, end - start)
