"""Whose rows: which task a travelling row goes to, where workers decide it and not Spark.

Rows of one partition share a task, and that is all that is promised; how the hash mixes is nobody's
business. Knows travelling rows and sets of subscriptions, no files and no Spark.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from concordant.correlate.columns import Array
from concordant.files.arrow import filled, is_text, texts_of
from concordant.spark.job import Job
from concordant.spark.rows import SEQ, SOURCE, TIME, attribute_column


def owners(rows: Any, job: Job, index: int, task_count: int) -> Array:
    """The number of the task that each row goes to for one of the job's sets; small numbers, which
    are sorted quickly."""
    names = key_columns(job, index)
    if len(names) == 1 and pa.types.is_dictionary(rows.schema.field(names[0]).type):
        column = texts_of(rows.column(names[0]))  # a text is hashed once, not once per row
        return _tasks(_hashes(column.dictionary), index, task_count)[column.values]
    found = np.zeros(rows.num_rows, np.uint64)
    for name in names:
        with np.errstate(over="ignore"):
            found = found * np.uint64(31) + _mixed(rows.column(name))
    return _tasks(found, index, task_count)


def key_columns(job: Job, index: int) -> list[str]:
    """The columns of travelling rows that say which partition of a set a row belongs to."""
    found = []
    for name in job.sets[index].key:
        if name in (SOURCE, SEQ, TIME):
            found.append(name)
        else:
            found += [attribute_column(n, kind) for n, kind in job.columns if n == name]
    return found


def _tasks(hashes: Array, index: int, task_count: int) -> Array:
    """Sets without a key begin at different tasks."""
    owner: Array = ((hashes + np.uint64(index)) % np.uint64(task_count)).astype(np.uint16)
    return owner


def _mixed(values: Any) -> Array:
    """Each value as a number in which all its bits count."""
    if is_text(values.type):
        values = values.dictionary_encode()
    if pa.types.is_dictionary(values.type):
        column = texts_of(values)
        return _hashes(column.dictionary)[column.values]
    if pa.types.is_floating(values.type):  # NaN counts as null, and the two zeros are one value
        numbers = filled(values, 0.0).to_numpy() + 0.0
        return _stirred(np.where(np.isnan(numbers), 0.0, numbers).view(np.uint64))
    return _stirred(filled(values.cast(pa.int64()), 0).to_numpy().view(np.uint64))


def _hashes(texts: Sequence[str]) -> Array:
    """One for each text, and the last, which code -1 finds, for null."""
    return _stirred(np.array([*(zlib.crc32(text.encode()) for text in texts), 0], np.uint64))


def _stirred(words: Array) -> Array:
    words = words ^ (words >> np.uint64(32))
    words = words * np.uint64(0x9E3779B97F4A7C15)
    mixed: Array = words ^ (words >> np.uint64(29))
    return mixed
