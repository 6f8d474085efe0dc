"""The consumer's end of a stream: what came, what is missing, and whom to ask for it.

Items come from any replica of a merger, in any order and more than once; they are taken in the
order of their index. Credit is given ahead, so that a replica need not be asked for every batch.
Where nothing comes, the next replica is asked: that is all there is to reconnecting.
"""

from __future__ import annotations

import msgspec

from concordant.machine.holdback import Holdback
from concordant.machine.instant import Instant
from concordant.order.merging.messages import Batch, Consumer, Item, Pull, unpacked
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.stamps import NOWHERE, Place

NEVER: Instant = -(1 << 62)
"""Before every instant, also of a clock that is far behind."""


class Inflow(msgspec.Struct):
    """One session of one consumer."""

    merger: str
    consumer: Consumer
    session: int
    held: Holdback[int, Item]
    next: int = 0
    """The next index to be taken."""
    end: int = 0
    """Up to here items were asked for."""
    replica: int = 0
    """Which replica is asked."""
    asked_at: Instant = NEVER
    heard_at: Instant = NEVER
    moved_at: Instant = 0
    """When the next item was there last."""
    frontier: Place = NOWHERE
    """What follows lies beyond."""
    marked: int = 0
    """The time up to which a mark was asked for."""

    def take_in(self, now: Instant, batch: Batch) -> None:
        """Items that came. After a crash the next one may be gone: it was done with before."""
        self.heard_at = now
        if batch.base > self.next:
            self.held.drain(lambda index: index < batch.base)
            self.next = batch.base
        for index, item in enumerate(unpacked(batch.items), batch.first):
            if index >= self.next:
                self.held.put(index, item)

    @property
    def head(self) -> Item | None:
        """The next item, if it is there, left where it is."""
        return self.held.waiting.get(self.next)

    def take(self, now: Instant) -> Item | None:
        """The next item, if it is there."""
        item = self.held.take(self.next)
        if item is not None:
            self.next += 1
            self.moved_at = now
        return item

    def wish(
        self,
        now: Instant,
        done: int,
        options: MergingOptions,
        *,
        overdue: bool,
        patient: bool = True,
    ) -> Pull | None:
        """What to ask for now, if anything; `overdue` looks at what should have come. Who is not
        patient reads on before it has done with what it has."""
        again = self.asked_at == NEVER  # what was sent to an earlier life is lost
        if overdue and self.asked_at != NEVER:
            unanswered = self.asked_at > self.heard_at and now - self.asked_at > options.repeat_us
            gap = len(self.held) > 0 and now - self.moved_at > options.repeat_us
            gap = gap and self.held.least() != self.next and now - self.asked_at > options.repeat_us
            again = unanswered or gap or now - self.asked_at > options.idle_us
            if unanswered:
                self.replica = (self.replica + 1) % options.replication.replica_count
        ahead = (done if patient else self.next) + options.window_count
        ahead = min(ahead, done + max(options.held_count_max, options.window_count))
        if not (again or 2 * (ahead - self.end) >= options.window_count):
            return None
        self.end = max(self.end, ahead)
        self.asked_at = now
        start = self.next
        while start in self.held:
            start += 1
        return Pull(self.merger, self.consumer, self.session, done, start, self.end, again)
