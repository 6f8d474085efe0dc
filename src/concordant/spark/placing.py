"""Numbers that Spark's shuffle sends each to a partition of its own.

Spark sends a row with the number `n` in the column by which it is spread to the partition
`pmod(hash(n), count)`, and two numbers may go to one. So for every partition the first number is
looked for that goes there. Were Spark to hash in another way, rows of a number would still meet in
one task, and some tasks would have more of them than others. Pure.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from concordant.correlate.columns import Array

_SEED = 42
"""Of the hash by which Spark spreads rows (`F.hash`, Murmur3 of 32 bits)."""


@cache
def numbers_of_places(count: int) -> tuple[int, ...]:
    """A number for each of so many partitions, by which Spark sends a row there.

    >>> len(numbers_of_places(4))
    4
    """
    found: dict[int, int] = {}
    start, step = 0, 16 * count
    while len(found) < count:
        numbers = np.arange(start, start + step, dtype=np.int64)
        places, firsts = np.unique(spark_hash(numbers) % count, return_index=True)
        for place, first in zip(places.tolist(), firsts.tolist(), strict=True):
            found.setdefault(place, start + first)
        start += step
    return tuple(found[place] for place in range(count))


def spark_hash(numbers: Array) -> Array:
    """What `F.hash` gives for integers of 32 bits."""
    word = numbers.astype(np.uint32) * np.uint32(0xCC9E2D51)
    word = _turned(word, 15) * np.uint32(0x1B873593)
    found = _turned(np.uint32(_SEED) ^ word, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    found ^= np.uint32(4)  # the length in bytes
    for bits, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        found = (found ^ (found >> np.uint32(bits))) * np.uint32(factor)
    found ^= found >> np.uint32(16)
    signed: Array = found.view(np.int32).astype(np.int64)
    return signed


def _turned(word: Array, bits: int) -> Array:
    turned: Array = (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))
    return turned
