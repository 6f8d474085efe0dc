"""The consumer's end of a stream: what came, what is missing, and whom to ask for it.

Items come from any replica of a merger, in any order and more than once; they are taken in the
order of their numbers. Credit is given ahead, so that a replica need not be asked for every batch.
Where nothing comes, the next replica is asked: that is all there is to reconnecting. How long it is
waited follows from how long answers take: whoever is busy is not asked for the same again.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from concordant.machine.holdback import Holdback
from concordant.machine.instant import Duration, Instant
from concordant.order.merging.messages import Batch, Consumer, Item, Pull, only_events, unpacked
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.stamps import NOWHERE, Place

HELD_COUNT_MAX = 1_000
"""Batches ahead of one that is missing; the farthest goes and is asked for again."""

READY_COUNT_MAX = 100_000
"""Items that nobody takes, beyond which a sender that gives more than was asked for is ignored."""

_PATIENCE = 4
"""An answer may take so many times as long as one took lately."""
_PATIENCE_MAX = 16
"""And at most so many times `repeat_us`."""

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
    only_events: bool = True
    """There is nothing else among them."""
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
    awaited_at: Instant = NEVER
    """Since when an answer is awaited; never if none is."""
    waited_us: Duration = 0
    """How long answers took lately: more at once, less by and by."""
    moved_at: Instant = 0
    """When nothing was missing last."""
    frontier: Place = NOWHERE
    """What follows lies beyond."""
    marked: int = 0
    """The time up to which a mark was asked for."""

    def take_in(self, now: Instant, batch: Batch) -> None:
        """What came. Where the session begins is only said in a batch for one."""
        self.heard_at = now
        if self.awaited_at != NEVER:
            less = self.waited_us - self.waited_us // 8
            self.waited_us, self.awaited_at = max(now - self.awaited_at, less), NEVER
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
        self.only_events = self.only_events and only_events(batch.items)
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
        items, self.ready, self.only_events = self.ready, [], True
        self.next = self.due
        return items

    def patience_us(self, options: MergingOptions) -> Duration:
        """How long it is waited for an answer."""
        most_us = options.repeat_us * _PATIENCE_MAX
        return min(most_us, max(options.repeat_us, _PATIENCE * self.waited_us))

    def silent(self, now: Instant, options: MergingOptions) -> bool:
        """Was nothing heard for longer than a look, or than answers take?"""
        return now - self.heard_at > max(options.tick_us, self.waited_us)

    def has_room(self, done: int, options: MergingOptions) -> bool:
        """Is so much done with that a patient consumer asks for more?"""
        return self.asked_at == NEVER or 2 * (self.end - done) <= options.window_count

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
        renew = False
        if overdue and self.asked_at != NEVER:
            patience_us = self.patience_us(options)
            unanswered = self.awaited_at != NEVER and now - self.awaited_at > patience_us
            gap = len(self.held) > 0 and now - self.moved_at > patience_us
            gap = gap and now - self.asked_at > patience_us
            renew = now - self.asked_at > options.idle_us
            again = unanswered or gap or (renew and now - self.heard_at > options.idle_us)
            if unanswered:  # or it is busy, and so may be the others: each is given longer
                self.replica = (self.replica + 1) % options.replication.replica_count
                self.waited_us, self.awaited_at = 2 * patience_us // _PATIENCE, NEVER
        ahead = (done if patient else self.next) + options.window_count
        ahead = min(ahead, done + max(options.held_count_max, options.window_count))
        if not (again or renew or 2 * (ahead - self.end) >= options.window_count):
            return None
        self.end = max(self.end, ahead)
        self.asked_at = now
        if self.awaited_at == NEVER:
            self.awaited_at = now
        return Pull(self.merger, self.consumer, self.session, done, self.due, self.end, again)

    def wishes(
        self,
        now: Instant,
        done: int,
        options: MergingOptions,
        *,
        overdue: bool,
        patient: bool = True,
    ) -> Iterator[tuple[int, Pull]]:
        """What to ask for now, and of which replica. One that another is asked in place of is told:
        it may only have been slow, and both would send."""
        before, due = self.replica, self.due
        wish = self.wish(now, done, options, overdue=overdue, patient=patient)
        if wish is not None:
            yield self.replica, wish
        if self.replica != before:
            leaves = Pull(self.merger, self.consumer, self.session, done, due, due, leaves=True)
            yield before, leaves

    def late(self, late_us: Duration) -> None:
        """Whoever looks late is busy itself, and what was answered may not be read yet."""
        self.waited_us = max(self.waited_us, late_us)
