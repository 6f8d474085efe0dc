"""What a merger knows of its consumers: those that read, those that wait, filters asked for.

A session sees the events that pass the filter in force, the marks, and what is for it alone. The
module knows no log and no order; what happens to sessions is the core's matter.
"""

from __future__ import annotations

import msgspec

from concordant.order.merging.filters import Filter
from concordant.order.merging.messages import Consumer, Ev, Item, Past

LENT_COUNT_MAX = 256
"""Loans that are remembered. One that is asked for again after so many others is given again, which
nobody minds."""


class Session(msgspec.Struct):
    """A consumer that has begun to read."""

    number: int
    begin: int
    """Its first item: what is before is not for it."""
    filter: Filter
    """The one in force now."""
    key: bytes = b""
    """Equal for equal filters; nothing where everything passes, which is the usual case."""
    earlier: list[tuple[int, Filter]] = []
    """Filters before, and the number of the item where each ended."""
    alone: list[int] = []
    """Numbers of the items that are for it alone."""
    version: int = -1
    """Of a child's filter; -1 for a subscriber."""
    conjunction: str = ""
    joined: bool = False
    """Its deliveries have begun, so it can give its queues to others."""
    donor: Consumer = ""
    cut: int = 0
    prefix: str = ""
    """A shorter conjunction whose queues it may begin with; nothing if there is none."""
    lent: list[int] = []
    """Of a child: the last cuts for which it was lent the queues of a subscriber here."""

    def reads(self, start: int) -> bool:
        """Is something from a number on for it alone?"""
        return bool(self.alone) and self.alone[-1] >= start

    def sees(self, item: Item) -> bool:
        """Is an item for it?"""
        if isinstance(item, Ev):
            for end, before in self.earlier:
                if item.n < end:
                    return before.passes(item.event)
            return self.filter.passes(item.event)
        return isinstance(item, Past) or item.n in self.alone


class Pending(msgspec.Struct):
    """A consumer that waits for its filter to be in force, or for the queues of its prefix."""

    consumer: Consumer
    number: int
    filter: Filter
    need: int
    """The filter version that both parents must have in force."""
    version: int = -1
    conjunction: str = ""
    prefix: str = ""
    after: int = 0
    borrowing: int = 0
    """The cut for which queues of its prefix are asked for; 0 if they are not."""


class Requested(msgspec.Struct, frozen=True):
    """A filter that was asked of the parents."""

    version: int
    filter: Filter
