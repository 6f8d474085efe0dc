"""The publisher's end: events on their way to the root of their topic.

Each topic has a root and the root has a leader; events are numbered per topic, sent to whom is
believed to lead, and repeated, to another replica in turn, until the root has them for good. What
was sent to a replica that does not answer goes to the next one piece by piece, each when the one
before has arrived: all at once would keep a new leader busy for so long that others stand.
"""

from __future__ import annotations

from itertools import takewhile

import msgspec

from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.order.merging.messages import Offer
from concordant.order.merging.options import MergingOptions


class Outlet(msgspec.Struct):
    """What one publisher has for one topic."""

    last: int = 0
    waiting: dict[int, Event] = {}
    """Not accepted yet, by number."""
    replica: int = 0
    sent: int = 0
    """The last number that was sent to this replica."""
    paced: bool = False
    """It is given piece by piece what another was sent before."""
    sent_at: Instant = 0
    """When it answered last, or was sent something while nothing was under way."""
    redirected: bool = False
    """It was sent elsewhere since it repeated last: two that name each other are not believed."""

    def add(self, event: Event) -> None:
        self.last += 1
        self.waiting[self.last] = event

    def accepted(self, n: int) -> bool:
        """The root has everything up to a number; True if that is news."""
        found = list(takewhile(lambda number: number <= n, self.waiting))
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

    def again(self, topic: str, options: MergingOptions) -> Offer | None:
        """The oldest that are not accepted."""
        self.sent, self.paced = self._accepted_count, True
        return self.more(topic, options)

    def more(self, topic: str, options: MergingOptions) -> Offer | None:
        """What may be sent now, if anything."""
        known, end = self._accepted_count, self.last
        if self.paced:
            end = min(end, known + options.batch_count_max)
        first, self.sent = max(self.sent, known) + 1, max(self.sent, end)
        self.paced = self.paced and self.sent < self.last
        if first > end:
            return None
        return Offer(topic, first, tuple(map(self.waiting.__getitem__, range(first, end + 1))))

    @property
    def _accepted_count(self) -> int:
        return next(iter(self.waiting), self.last + 1) - 1
