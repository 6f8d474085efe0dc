"""Rows with one place: several events with the same time, source and seq, of which one is kept.

In a log the number alone is the place. Nothing but what they say tells such events apart, and in
which order they come is chance. So what they say decides: time, topic by name, then the attributes
that the subscriptions read, by name, then all others, then the id; a null before every value.
Whoever is first among those that can be used is kept, in each partition one. Looks at nothing
unless two rows share a place. Pure: batches in, masks out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np

from concordant.correlate.columns import Array, Batch, Column
from concordant.model.kind import Kind
from concordant.spark.repeats import event_ids
from concordant.spark.rows import SEQ, SOURCE, TIME


def in_chunks(rows: Any, size: int, *, time_ordered: bool = True) -> Iterator[Any]:
    """Ordered rows, about so many at a time; those of one place come together."""
    names = (TIME, SOURCE, SEQ) if time_ordered else (SEQ,)
    start = 0
    while start < rows.num_rows:
        end = min(start + size, rows.num_rows)
        while end < rows.num_rows and all(
            rows.column(name)[end].as_py() == rows.column(name)[end - 1].as_py() for name in names
        ):
            end += 1
        yield rows.slice(start, end - start)
        start = end


def same_places(batch: Batch, *, time_ordered: bool = True) -> Array:
    """Which events of an ordered batch have the place of the one before them."""
    same = np.zeros(len(batch), np.bool_)
    same[1:] = batch.seq[1:] == batch.seq[:-1]
    if time_ordered:
        same[1:] &= batch.time[1:] == batch.time[:-1]
        same[1:] &= batch.source.values[1:] == batch.source.values[:-1]
    return same


def tied_rows(same: Array) -> Array:
    """The events that share their place with another."""
    tied = same.copy()
    tied[:-1] |= same[1:]
    return np.flatnonzero(tied)


def by_content(batch: Batch, same: Array, read: Collection[str]) -> tuple[Batch, Array]:
    """The batch with events of one place sorted by what they say, first by the attributes that are
    read; and which say all that the one before them says."""
    rows = tied_rows(same)
    tied = batch.take(rows)
    keys = [np.cumsum(~same)[rows], *_content(tied, read)]
    order = np.lexsort(keys[::-1])
    equal = np.ones(len(rows), np.bool_)
    for key in keys:
        equal[1:] &= key[order][1:] == key[order][:-1]
    equal[:1] = False
    whole = np.arange(len(batch))
    whole[rows] = rows[order]
    copies = np.zeros(len(batch), np.bool_)
    copies[rows] = equal
    return batch.take(whole), copies


def _content(batch: Batch, read: Collection[str]) -> list[Array]:
    """What events say as arrays to sort by, the most important first."""
    found = [batch.time, _ranks(batch.topic.tolist(), batch.topic_names)]
    for key in sorted(batch.attributes, key=lambda key: (key[0] not in read, *key)):
        found += _comparable(batch.attributes[key])
    return [*found, _texts(event_ids(batch).to_pylist())]


def _comparable(column: Column) -> list[Array]:
    """Arrays that sort as the values do, nulls first, and are equal where nobody sees a
    difference: a NaN is a NaN, but a zero has a sign."""
    if column.kind is Kind.NULL:
        return []
    if column.kind is Kind.STRING:
        return [_ranks(column.values.tolist(), column.dictionary)]
    values = column.values
    valid = np.ones(len(values), np.bool_) if column.valid is None else column.valid
    if column.kind is not Kind.FLOAT:
        return [valid, np.where(valid, values, 0)]
    number = valid & ~np.isnan(values)
    values = np.where(number, values, 0.0)
    return [valid, number, values, ~np.signbit(values)]


def _ranks(codes: Sequence[int], dictionary: Sequence[str]) -> Array:
    """Codes of texts as numbers that sort as the texts do; null, -1, is first."""
    return _texts([dictionary[code] if code >= 0 else None for code in codes])


def _texts(texts: Sequence[str | None]) -> Array:
    """Texts as numbers that sort as they do, null first."""
    ranks = {text: rank for rank, text in enumerate(sorted({t for t in texts if t is not None}))}
    return np.array([-1 if text is None else ranks[text] for text in texts], np.int64)


def all_but_first(batch: Batch, same: Array, key: Collection[str], usable: Array) -> Array:
    """Usable events that have the place and the partition of a usable one before them."""
    rows = np.flatnonzero(usable)
    partition = np.cumsum(~same)[rows]
    if TIME in key:  # equal for all but logs, as source and seq are for all
        partition = _joined(partition, Column(Kind.TIME, batch.time[rows]))
    for (name, kind), column in batch.attributes.items():
        if name in key and kind is not Kind.NULL:
            partition = _joined(partition, column.take(rows))
    lost = np.zeros(len(batch), np.bool_)
    lost[rows] = True
    lost[rows[np.unique(partition, return_index=True)[1]]] = False
    return lost


def _joined(numbers: Array, column: Column) -> Array:
    """Numbers that are equal where those given are, and the partition values of a column."""
    if column.kind is Kind.FLOAT:  # NaN counts as null, and the two zeros are one value
        valid = ~np.isnan(column.values)
        if column.valid is not None:
            valid &= column.valid
        column = Column(Kind.FLOAT, np.where(valid, column.values, 0.0) + 0.0, valid)
    for values in _comparable(column):
        known, codes = np.unique(values, return_inverse=True)
        numbers = np.unique(numbers * len(known) + codes, return_inverse=True)[1]
    return numbers
