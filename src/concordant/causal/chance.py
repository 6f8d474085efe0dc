"""Chance for a pure machine: a small generator whose state is part of the machine's snapshot.

The numbers are those of SplitMix64, a mixing function that is short, quick and good enough to draw
whom to gossip with. By hand because a core has no chance of its own: the driver gives the seed, and
a restored machine draws what the first would have drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

import msgspec

V = TypeVar("V")

_MASK = (1 << 64) - 1


class Chance(msgspec.Struct):
    """
    >>> one, other = Chance.of(7, "a"), Chance.of(7, "a")
    >>> [one.below(10) for _ in range(5)] == [other.below(10) for _ in range(5)]
    True
    """

    state: int

    @classmethod
    def of(cls, seed: int, name: str) -> Chance:
        """A generator of its own for each name."""
        return cls((seed * 0x1_0000_0001 + crc32(name.encode())) & _MASK)

    def below(self, count: int) -> int:
        """A number from 0 to below `count`."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return ((z ^ (z >> 31)) * count) >> 64

    def sample(self, items: Sequence[V], count: int) -> list[V]:
        """So many of the items, each at most once; all of them if there are not more.

        Floyd's way: as many draws as items are wanted, however many there are.

        >>> sorted(Chance.of(1, "a").sample("abc", 5))
        ['a', 'b', 'c']
        """
        if count >= len(items):
            return list(items)
        if count == 1:
            return [items[self.below(len(items))]]
        chosen: dict[int, bool] = {}
        for last in range(len(items) - count, len(items)):
            place = self.below(last + 1)
            chosen[last if place in chosen else place] = True
        return [items[place] for place in chosen]
