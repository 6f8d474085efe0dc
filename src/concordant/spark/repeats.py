"""Ids that come again: events whose id was there shortly before, at another place in the order.

A producer that sends twice gives the copy another offset and often another time. What a bucket
remembers is bounded by time, so that it does not depend on how the input was cut: an id is known
until it was not there for the whole window. In a log times may go back: there an id is known as
long as nothing in its bucket is later by more than the window. Pure: ids and times in, a mask out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from concordant.correlate.columns import Array, Batch
from concordant.files.write import array_of
from concordant.model.kind import INT_MIN, Kind
from concordant.spark.rows import SEQ, SOURCE, TIME, own_ids

_LATEST = b"latest"
"""What the latest time is called beside what is saved."""


class Seen:
    """The ids of a bucket's events, each with the time at which it was there last."""

    def __init__(self, window_us: int, saved: bytes = b"") -> None:
        self._window_us = window_us
        self._ids = pa.array([], pa.string())
        self._time: Array = np.zeros(0, np.int64)
        self._latest = INT_MIN
        if saved:
            table = pa.ipc.open_stream(pa.py_buffer(saved)).read_all().combine_chunks()
            self._ids = table.column(0).combine_chunks()
            self._time = table.column(1).to_numpy().copy()
            told = (table.schema.metadata or {}).get(_LATEST)
            self._latest = int(told or self._time.max(initial=INT_MIN))

    def again(self, ids: Any, time: Array) -> Array:
        """Which of these events have an id that was there within the window."""
        known = len(self._ids)
        both = pa.concat_arrays([self._ids, ids])
        times = np.concatenate([self._time, time])
        codes = both.dictionary_encode().indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        same = codes[order][1:] == codes[order][:-1]
        latest = np.maximum.accumulate(np.concatenate([[self._latest], times]))[1:]
        before, now = times[order][:-1], times[order][1:]
        near = (before >= self._since(latest)[order][1:]) & (now >= self._since(before))
        repeated = np.zeros(len(both), np.bool_)
        repeated[order[1:][same & near]] = True
        last = np.ones(len(both), np.bool_)
        last[order[:-1][same]] = False
        if len(latest):
            self._latest = int(latest[-1])
            last &= times >= self._since(latest[-1:])
        self._ids, self._time = both.filter(pa.array(last)), times[last]
        return repeated[known:]

    def _since(self, times: Array) -> Array:
        """Where the window before each time begins."""
        return np.maximum(times, INT_MIN + self._window_us) - self._window_us

    def save(self) -> bytes:
        """What is remembered, as bytes."""
        table = pa.table({"id": self._ids, "time": self._time})
        table = table.replace_schema_metadata({_LATEST: str(self._latest)})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())


def event_ids(batch: Batch) -> Any:
    """The ids of events as an Arrow array: the given ones, else source and seq."""
    if batch.ids is not None and batch.ids.valid is None:
        return array_of(batch.ids)
    ids = own_ids(batch.source, pa.array(batch.seq))
    return ids if batch.ids is None else pc.coalesce(array_of(batch.ids), ids)


def ids_by_key(batch: Batch, key: tuple[str, ...]) -> Any:
    """Ids with the partition values of their events: only events that may meet are compared."""
    parts = [_told_apart(values) for name in key for values in _values_of(batch, name)]
    return pc.binary_join_element_wise(*parts, event_ids(batch), "") if parts else event_ids(batch)


def _values_of(batch: Batch, name: str) -> Iterator[Any]:
    """The columns whose equality is the equality of partition values, as Arrow arrays."""
    if name == SOURCE:
        yield array_of(batch.source)
    elif name in (SEQ, TIME):
        yield pa.array(batch.seq if name == SEQ else batch.time)
    for (attribute, kind), column in batch.attributes.items():
        if attribute == name and kind is Kind.FLOAT:  # NaN is null, and the two zeros are one value
            values = pa.array(column.values + 0.0, from_pandas=True)
            yield values if column.valid is None else pc.if_else(column.valid, values, None)
        elif attribute == name and kind is Kind.STRING:
            yield array_of(column)
        elif attribute == name and kind is not Kind.NULL:
            yield pa.array(column.values, mask=None if column.valid is None else ~column.valid)


def _told_apart(values: Any) -> Any:
    """Values as texts that say where they end: none is the beginning of another, nor is null."""
    texts = values.cast(pa.string())
    sizes = pc.binary_length(texts).cast(pa.string())
    return pc.binary_join_element_wise(sizes, texts, ":").fill_null("-")
