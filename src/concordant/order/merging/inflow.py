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
    """Items ahead of one that is missing."""
    ready: list[Item] = []
    """Items whose turn has come, and that were not taken yet."""
    next: int = 0
    """The next index to be taken."""
    end: int = 0
    """Up to here items were asked for."""
    replica: int = 0
    """Which replica is asked."""
    asked_at: Instant = NEVER
    heard_at: Instant = NEVER
    moved_at: Instant = 0
    """When nothing was missing last."""
    frontier: Place = NOWHERE
    """What follows lies beyond."""
    marked: int = 0
    """The time up to which a mark was asked for."""

    def take_in(self, now: Instant, batch: Batch) -> None:
        """Items that came. After a crash the next one may be gone: it was done with before."""
        self.heard_at = now
        if batch.base > self.next:
            self.held.drain(lambda index: index < batch.base)
            del self.ready[: batch.base - self.next]
            self.next = batch.base
        items = unpacked(batch.items)
        if batch.first > self.due:
            for index, item in enumerate(items, batch.first):
                self.held.put(index, item)
            return
        new = items[self.due - batch.first :][: self.held.count_max - len(self.ready)]
        if not new:
            return
        self.moved_at = now
        self.ready += new
        if len(self.held):
            self.held.drain(lambda index: index < self.due)
            while (item := self.held.take(self.due)) is not None:
                self.ready.append(item)

    @property
    def due(self) -> int:
        """The next index that is not here."""
        return self.next + len(self.ready)

    @property
    def count(self) -> int:
        """Items that are here and were not taken."""
        return len(self.ready) + len(self.held)

    @property
    def head(self) -> Item | None:
        """The next item, if it is there, left where it is."""
        return self.ready[0] if self.ready else None

    def take(self) -> Item:
        """The next item, which is there."""
        self.next += 1
        return self.ready.pop(0)

    def take_all(self) -> tuple[int, list[Item]]:
        """Everything whose turn has come, and the index of the first."""
        first, items = self.next, self.ready
        self.next, self.ready = self.due, []
        return first, items

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
            gap = gap and now - self.asked_at > options.repeat_us
            again = unanswered or gap or now - self.asked_at > options.idle_us
            if unanswered:
                self.replica = (self.replica + 1) % options.replication.replica_count
        ahead = (done if patient else self.next) + options.window_count
        ahead = min(ahead, done + max(options.held_count_max, options.window_count))
        if not (again or 2 * (ahead - self.end) >= options.window_count):
            return None
        self.end = max(self.end, ahead)
        self.asked_at = now
        return Pull(self.merger, self.consumer, self.session, done, self.due, self.end, again)
