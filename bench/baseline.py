"""The yardstick: read the columns that a subscription needs, hash the key, do nothing else.

One thread, compiled by Numba like the kernel's loops, over the same arrays. It finds no relation,
keeps no event and looks at no predicate: no engine that groups events by a key can do less. Two
ways to hash: Numba's own dictionary, as anybody would write it, and a table made for integers of
which it is known how many there are, the leanest we know of.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, typed, types

from concordant.correlate.columns import Array, Batch
from concordant.model.kind import Kind

Name = tuple[str, Kind]


class Baseline:
    """The columns of a batch that a subscription needs, ready to be read."""

    def __init__(self, batch: Batch, needed: tuple[Name, ...], key: Name | None) -> None:
        self._topic = batch.topic
        self._time = batch.time
        # A float is read as its bits: the type of a sum would cost more than the reading.
        self._columns = tuple(_words(batch, name) for name in needed)
        # Without a partition the topic alone decides which queue an event goes to.
        self._key = batch.topic if key is None else batch.attributes[key].values
        distinct = len(np.unique(self._key))
        self._bits = table_bits(distinct)
        assert self.run() == self.run_dictionary() == distinct, "the baseline lost a key"

    def run(self) -> int:
        """One pass; the number of distinct keys."""
        size = 1 << self._bits
        keys = np.zeros(size, np.int64)
        counts = np.zeros(size, np.int64)
        shift = 64 - self._bits
        if self._columns:
            sums = _pass(self._topic, self._time, self._key, self._columns, keys, counts, shift)
        else:
            sums = _pass_bare(self._topic, self._time, self._key, keys, counts, shift)
        assert counts.sum() == len(self._topic), "the baseline lost an event"
        return int(np.count_nonzero(counts)) + 0 * int(sums & 1)

    def run_dictionary(self) -> int:
        """The same with Numba's own dictionary, one look-up per event."""
        seen = typed.Dict.empty(types.int64, types.int64)
        if self._columns:
            again, _ = _pass_dictionary(self._topic, self._time, self._key, self._columns, seen)
        else:
            again, _ = _pass_dictionary_bare(self._topic, self._time, self._key, seen)
        assert again + len(seen) == len(self._topic), "the baseline lost an event"
        return len(seen)


def table_bits(distinct: int) -> int:
    """The size of a table that so many keys fill by half at most, as a power of two."""
    return max(4, int(2 * distinct - 1).bit_length())


def _words(batch: Batch, name: Name) -> Array:
    values = batch.attributes[name].values
    return values.view(np.int64) if values.dtype == np.float64 else values.astype(np.int64)


@njit(cache=True)
def find_place(key: Any, keys: Any, counts: Any, shift: Any) -> Any:
    """The place of a key in an open-addressing table, where its count is; it is counted."""
    place = (np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(shift)
    mask = np.uint64(len(keys) - 1)
    while counts[place] != 0 and keys[place] != key:
        place = (place + np.uint64(1)) & mask
    keys[place] = key
    counts[place] += 1
    return place


@njit(cache=True)
def _pass(topic: Any, time: Any, key: Any, columns: Any, keys: Any, counts: Any, shift: Any) -> Any:
    total = np.int64(0)
    for row in range(len(topic)):
        total ^= topic[row] + time[row]
        for column in columns:
            total ^= column[row]
        find_place(np.int64(key[row]), keys, counts, shift)
    return total


@njit(cache=True)
def _pass_bare(topic: Any, time: Any, key: Any, keys: Any, counts: Any, shift: Any) -> Any:
    total = np.int64(0)
    for row in range(len(topic)):
        total ^= topic[row] + time[row]
        find_place(np.int64(key[row]), keys, counts, shift)
    return total


@njit(cache=True)
def _pass_dictionary(topic: Any, time: Any, key: Any, columns: Any, seen: Any) -> Any:
    total = np.int64(0)
    again = 0
    for row in range(len(topic)):
        total ^= topic[row] + time[row]
        for column in columns:
            total ^= column[row]
        one = np.int64(key[row])  # here and not in a function: a call would cost as much again
        if one in seen:
            again += 1
        else:
            seen[one] = 1
    return again, total


@njit(cache=True)
def _pass_dictionary_bare(topic: Any, time: Any, key: Any, seen: Any) -> Any:
    total = np.int64(0)
    again = 0
    for row in range(len(topic)):
        total ^= topic[row] + time[row]
        one = np.int64(key[row])
        if one in seen:
            again += 1
        else:
            seen[one] = 1
    return again, total
