"""One bounded holdback for all protocols: items that wait until they are ready.

It keeps items by key and hands them out by key (what exactly is awaited) or least first (what is
due). It knows no protocol: what a key means and when an item is ready is for its owner to say. The
bound keeps a fast or hostile sender from filling the memory; when it is reached, the item that is
farthest from its turn goes, and its owner asks for it again when its turn comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from typing import Generic, TypeVar

import msgspec

K = TypeVar("K", int, tuple[int, str, int])
V = TypeVar("V")


class Holdback(msgspec.Struct, Generic[K, V]):
    """
    >>> held = Holdback[int, str](count_max=2)
    >>> held.put(7, "seven"), held.put(5, "five"), held.put(5, "again"), held.put(9, "nine")
    (True, True, False, False)
    >>> held.put(6, "six"), 7 in held
    (True, False)
    >>> [held.drain(lambda key: key < 6), len(held)]
    [['five'], 1]
    """

    count_max: int
    waiting: dict[K, V] = {}
    order: list[K] = []
    """The keys as a heap; keys that were taken out of turn are passed over."""
    farthest: K | None = None
    """The greatest key, looked for again only after it went: a flood of keys far ahead is refused
    at once."""

    def __len__(self) -> int:
        return len(self.waiting)

    def __contains__(self, key: K) -> bool:
        return key in self.waiting

    def __iter__(self) -> Iterator[K]:
        """The keys, least first."""
        return iter(sorted(self.waiting))

    def put(self, key: K, item: V) -> bool:
        """Keep an item; False if its key is there already or everything kept is nearer its turn."""
        if key in self.waiting:
            return False
        if len(self.waiting) >= self.count_max:
            if self.farthest not in self.waiting:
                self.farthest = max(self.waiting)
            if self.farthest < key:
                return False
            del self.waiting[self.farthest]
        elif self.farthest is not None and self.farthest < key:
            self.farthest = key
        self.waiting[key] = item
        heappush(self.order, key)
        if len(self.order) > 2 * self.count_max:  # most of it went out of turn
            self.order = sorted(self.waiting)
        return True

    def take(self, key: K) -> V | None:
        """Hand out the item of a key, if it is there."""
        item = self.waiting.pop(key, None)
        if not self.waiting:
            self.order.clear()
        return item

    def least(self) -> K | None:
        """The key whose turn is next."""
        while self.order:
            if self.order[0] in self.waiting:
                return self.order[0]
            heappop(self.order)
        return None

    def drain(self, ready: Callable[[K], bool]) -> list[V]:
        """Hand out items, least first, while they are ready."""
        found: list[V] = []
        while (key := self.least()) is not None and ready(key):
            heappop(self.order)
            found.append(self.waiting.pop(key))
        return found

    def drop(self, unwanted: Callable[[V], bool]) -> None:
        """Forget the items that nobody wants any longer."""
        self.waiting = {key: item for key, item in self.waiting.items() if not unwanted(item)}
        self.order = sorted(self.waiting)
