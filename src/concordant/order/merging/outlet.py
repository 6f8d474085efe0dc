"""The publisher's end: events on their way to the root of their topic.

Each topic has a root and the root has a leader; events are numbered per topic, sent to whom is
believed to lead, and repeated, to another replica in turn, until the root has them for good.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.order.merging.options import MergingOptions
from concordant.order.streams import Numbered


class Outlet(msgspec.Struct):
    """What one publisher has for one topic."""

    last: int = 0
    waiting: dict[int, Event] = {}
    """Not accepted yet, by number."""
    replica: int = 0
    sent_at: Instant = 0
    redirected: bool = False
    """It was sent elsewhere since it repeated last: two that name each other are not believed."""

    def add(self, event: Event) -> int:
        self.last += 1
        self.waiting[self.last] = event
        return self.last

    def accepted(self, n: int) -> bool:
        """The root has everything up to a number; True if that is news."""
        found = [number for number in self.waiting if number <= n]
        for number in found:
            del self.waiting[number]
        return bool(found)

    def redirect(self, replica: int) -> bool:
        """Another replica is said to lead; True if that is news, and the first since repeating."""
        if self.redirected or replica == self.replica:
            return False
        self.redirected, self.replica = True, replica
        return True

    def next_replica(self, count: int) -> None:
        """The one that was asked does not answer."""
        self.replica, self.redirected = (self.replica + 1) % count, False

    def again(self, stream: tuple[str, str], options: MergingOptions) -> tuple[Numbered, ...]:
        """The oldest that are not accepted."""
        oldest = islice(self.waiting.items(), options.batch_count_max)
        return tuple(Numbered(stream, n, event) for n, event in oldest)
