"""A loop written by hand for one question: as fast as it goes where nothing else may be asked.

`A then B then …` by key, the first match, its prefix consumed, one thread. The loop is compiled for
its number of topics, keeps the queues of each key as linked lists of row numbers, and gives row
numbers: no predicates, no other policies, no ids, no state that outlives it. What separates it from
the loop that only reads and hashes (`baseline`) is what matching itself costs; what separates the
kernel from it is that the kernel takes any subscription as data.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numba import njit

from bench.baseline import Name, find_place, table_bits
from concordant.correlate.columns import Batch

_OTHER = 1 << 20
"""The code of topics that nobody asks for."""


class ByHand:
    """The loop over one batch."""

    def __init__(self, batch: Batch, topics: Sequence[str], key: Name) -> None:
        places = {name: place for place, name in enumerate(topics)}
        codes = np.array([places.get(name, _OTHER) for name in batch.topic_names], np.int32)
        self._topic = codes[batch.topic]
        self._key = batch.attributes[key].values.astype(np.int64)
        self._bits = table_bits(len(np.unique(self._key)))
        self._length = len(topics)
        self.run()  # compiled before it is measured

    def run(self) -> int:
        """One pass; how many relations there are."""
        size, count = 1 << self._bits, len(self._topic)
        queues = size * (self._length - 1)
        found: int = _loop(self._length)(
            self._topic,
            self._key,
            np.zeros(size, np.int64),
            np.zeros(size, np.int64),
            64 - self._bits,
            np.full(queues, -1),
            np.empty(queues, np.int64),
            np.empty(count, np.int64),
            np.empty((count // self._length + 1, self._length), np.int64),
        )
        return found


@cache
def _loop(length: int) -> Any:
    before = length - 1
    """Topics that are queued: the last one only completes."""

    @njit
    def run(
        topic: Any,
        key: Any,
        keys: Any,
        counts: Any,
        shift: Any,
        head: Any,
        tail: Any,
        following: Any,
        out: Any,
    ) -> Any:
        count = 0
        for row in range(len(topic)):
            which = topic[row]
            if which >= length:
                continue
            first = np.int64(find_place(key[row], keys, counts, shift)) * before
            queue = first + which
            if which < before:
                if which > 0 and head[queue - 1] < 0:
                    continue  # what it would have to follow has not come
                following[row] = -1
                if head[queue] < 0:
                    head[queue] = row
                else:
                    following[tail[queue]] = row
                tail[queue] = row
                continue
            last = head[first]
            for queue in range(first + 1, first + before):
                if last < 0:
                    break
                one = head[queue]
                while 0 <= one < last:  # nothing that comes can precede it any more
                    one = following[one]
                head[queue] = last = one
            if last >= 0:
                for slot in range(before):
                    one = head[first + slot]
                    out[count, slot] = one
                    head[first + slot] = following[one]
                out[count, before] = row
                count += 1
        return count

    return run
