"""The consumer's end of a stream: what came, what is missing, and whom to ask for it.

Items come from any replica of a merger, in any order and more than once; they are taken in the
order of their numbers. Credit is given ahead, so that a replica need not be asked for every batch.
Where nothing comes, the next replica is asked: that is all there is to reconnecting.
"""

from __future__ import annotations

import msgspec

from concordant.machine.holdback import Holdback
from concordant.machine.instant import Instant
from concordant.order.merging.messages import Batch, Consumer, Item, Pull, unpacked
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.stamps import NOWHERE, Place

HELD_COUNT_MAX = 1_000
"""Batches ahead of one that is missing; the farthest goes and is asked for again."""

READY_COUNT_MAX = 100_000
"""Items that nobody takes, beyond which a sender that gives more than was asked for is ignored."""

NEVER: Instant = -(1 << 62)
"""Before every instant, also of a clock that is far behind."""


class Inflow(msgspec.Struct):
    """One session of one consumer."""

    merger: str
    consumer: Consumer
    session: int
    held: Holdback[int, Batch]
    """Batches ahead of one that is missing, by their first number."""
    ready: list[Item] = []
    """Items whose turn has come, and that were not taken yet."""
    next: int = 0
    """What is below was taken."""
    due: int = 0
    """What is below is here, or was not for this consumer."""
    begin: int = -1
    """Where the session began, which is how batches for many name it; -1 if that is not known."""
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
        """What came. Where the session begins is only said in a batch for one."""
        self.heard_at = now
        if batch.consumer:
            self.begin = batch.begin
            self.due = max(self.due, batch.base)
        if batch.first > self.due:
            self.held.put(batch.first, batch)
            return
        self._add(now, batch)
        while (first := self.held.least()) is not None and first <= self.due:
            held = self.held.take(first)
            assert held is not None
            self._add(now, held)

    def _add(self, now: Instant, batch: Batch) -> None:
        if batch.end <= self.due or len(self.ready) > READY_COUNT_MAX:
            return
        items = unpacked(batch.items)
        self.ready += items if batch.first == self.due else [i for i in items if i.n >= self.due]
        self.due, self.moved_at = batch.end, now

    def go_on(self, next: int) -> None:
        """What is below was taken in another life."""
        self.next = self.due = next

    @property
    def count(self) -> int:
        """Items that are here and were not taken, and batches that wait for others."""
        return len(self.ready) + len(self.held)

    @property
    def head(self) -> Item | None:
        """The next item, if it is there, left where it is."""
        return self.ready[0] if self.ready else None

    def take(self) -> Item:
        """The next item, which is there."""
        item = self.ready.pop(0)
        self.next = item.n + 1 if self.ready else self.due
        return item

    def take_all(self) -> list[Item]:
        """Everything whose turn has come."""
        items, self.ready = self.ready, []
        self.next = self.due
        return items

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
