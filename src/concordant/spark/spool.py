"""A batch of this process, laid down for the tasks: each finds its own rows in a file of its own.

The events are columns already, checked and in order, so they are parted here, once: a task reads
what it matches and nothing else, hashes nothing and sorts nothing. Knows Arrow and files; that the
tasks see the folder (a local master) is for the caller to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from concordant.correlate.columns import Batch, Column
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
    without_own_ids,
)
from concordant.spark.share import owners
from concordant.spark.step import CHUNK, DICTIONARY_MAX


def write_shares(batch: Batch, job: Job, folder: Path, task_count: int) -> None:
    """The rows of an ordered batch that a job wants, to a file per task."""
    rows = _travelling(batch, job)
    shares = [_share(rows, job, index, task_count) for index in range(len(job.sets))]
    for number in range(task_count):
        schema = rows.schema.insert(0, pa.field(SET, pa.int32()))
        with pa.ipc.new_stream(_path(folder, number), schema) as writer:
            for index, (wanted, owner) in enumerate(shares):
                mine = wanted if owner is None else wanted.filter(pa.array(owner == number))
                chosen = pa.array(np.full(mine.num_rows, index, np.int32))
                writer.write_table(mine.add_column(0, schema.field(0), chosen), CHUNK)


def share(folder: Path, number: int, _: Job) -> Iterator[Any]:
    """The rows of the task with a number, chunk after chunk."""
    with pa.OSFile(_path(folder, number)) as file:
        for rows in pa.ipc.open_stream(file):
            yield pa.table(rows)


def _path(folder: Path, number: int) -> str:
    return str(folder / f"{number}.arrow")


def _travelling(batch: Batch, job: Job) -> Any:
    """The events of topics that somebody reads in the columns in which rows travel."""
    codes = {topic.name: code for code, topic in enumerate(job.topics)}
    recode = np.array([codes.get(name, -1) for name in batch.topic_names], np.int32)
    if (recode < 0).any():
        batch = batch.take(recode[batch.topic] >= 0)
    ids = pa.nulls(len(batch), pa.string()) if batch.ids is None else array_of(batch.ids)
    columns = {
        TOPIC: pa.array(recode[batch.topic]),
        SOURCE: _array(batch.source),
        SEQ: pa.array(batch.seq),
        TIME: pa.array(batch.time),
        ID: ids,
    }
    for name, kind in job.columns:
        columns[attribute_column(name, kind)] = _array(batch.attributes[name, kind])
    return without_own_ids(pa.table(columns))


def _array(column: Column) -> Any:
    """Texts as codes unless nearly every one is another; times as numbers."""
    mask = None if column.valid is None else ~column.valid
    if column.kind is not Kind.STRING:
        return pa.array(column.values, mask=mask)
    if len(column.dictionary) > DICTIONARY_MAX:
        return array_of(column)
    codes = pa.array(column.values, mask=mask)
    return pa.DictionaryArray.from_arrays(codes, pa.array(column.dictionary, pa.string()))


def _share(rows: Any, job: Job, index: int, task_count: int) -> tuple[Any, Any]:
    """The rows that a set reads, and the task of each; None if there is one task."""
    topics = job.sets[index].topics
    read = np.array([topic.name in topics for topic in job.topics])
    if not read.all():
        rows = rows.filter(pa.array(read[rows.column(TOPIC).to_numpy()]))
    return rows, None if task_count == 1 else owners(rows, job, index, task_count)
