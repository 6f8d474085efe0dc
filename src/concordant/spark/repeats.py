"""Ids that come again: events whose id was there shortly before, at another place in the order.

A producer that sends twice gives the copy another offset and often another time. What a bucket
remembers is bounded by time, so that it does not depend on how the input was cut or spread: an id
is known until it was not there for the whole window. Pure: ids and times in, a mask out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from concordant.correlate.columns import Array, Batch
from concordant.files.write import array_of
from concordant.spark.rows import own_ids

_BETWEEN = "\x1f"
"""Between an id and the partition values that it belongs to."""


class Seen:
    """The ids of a bucket's events, each with the time at which it was there last."""

    def __init__(self, window_us: int, saved: bytes = b"") -> None:
        self._window_us = window_us
        self._ids = pa.array([], pa.string())
        self._time: Array = np.zeros(0, np.int64)
        if saved:
            table = pa.ipc.open_stream(pa.py_buffer(saved)).read_all().combine_chunks()
            self._ids = table.column(0).combine_chunks()
            self._time = table.column(1).to_numpy().copy()

    def again(self, ids: Any, time: Array) -> Array:
        """Which of these events have an id that was there within the window."""
        known = len(self._ids)
        both = pa.concat_arrays([self._ids, ids])
        times = np.concatenate([self._time, time])
        codes = both.dictionary_encode().indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        same = codes[order][1:] == codes[order][:-1]
        near = np.abs(times[order][1:] - times[order][:-1]) <= self._window_us
        repeated = np.zeros(len(both), np.bool_)
        repeated[order[1:][same & near]] = True
        last = np.ones(len(both), np.bool_)
        last[order[:-1][same]] = False
        last &= times >= times.max(initial=0) - self._window_us
        self._ids, self._time = both.filter(pa.array(last)), times[last]
        return repeated[known:]

    def save(self) -> bytes:
        """What is remembered, as bytes."""
        table = pa.table({"id": self._ids, "time": self._time})
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
    parts = [event_ids(batch)]
    for (name, _), column in batch.attributes.items():
        if name in key:
            parts.append(array_of(column).cast(pa.string()).fill_null(""))
    return pc.binary_join_element_wise(*parts, _BETWEEN) if len(parts) > 1 else parts[0]
