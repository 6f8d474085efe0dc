"""A subscriber's session with a merger: from the wish to join to the events that it feeds.

A session begins with `Start`. Without a donor it is live at once, with empty queues. With a donor,
items are kept until the donor's queues of that cut are here and the merger has said `Live`; a later
`Start` makes everything before it void. Only a live session delivers: that is what makes it safe
that a donor may die at any moment. The module knows one session; the order among the sessions of a
subscriber is the subscriber's matter.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from concordant.machine.effects import Note
from concordant.machine.instant import Instant
from concordant.model.subscription import Conjunction, Policy, Subscription
from concordant.order.merging.filters import ALL, Filter, filter_of, is_counted
from concordant.order.merging.inflow import Inflow
from concordant.order.merging.messages import (
    Advance,
    Attach,
    Complete,
    Ev,
    Item,
    Live,
    Recut,
    Start,
)
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.overlay import Signature, name_of, signature_of
from concordant.order.merging.stamps import Place, beyond

Stage = Literal["attaching", "waiting", "live"]

_PUSHED_MAX = 4
"""How often the time doubles after which something is said again."""


class Wanted(msgspec.Struct, frozen=True):
    """One conjunction of a subscription, or one topic without correlation."""

    subscription: Subscription | None
    number: int = 0
    """Of the conjunction in its subscription, from 1."""
    topic: str = ""

    @property
    def name(self) -> str:
        """Its name at its subscriber."""
        if self.subscription is None:
            return self.topic
        return f"{self.subscription.name}/{self.number}"

    @property
    def conjunction(self) -> str:
        """The same for all who ask the same, policies and bounds included."""
        return self.topic if self.subscription is None else self.subscription.canonical

    @property
    def prefix(self) -> str:
        """The same without its last topic, where it is sure that whoever asks for that delivers
        what is delivered here, cut short; nothing elsewhere."""
        asked = self.subscription
        if asked is None or asked.emit is not None or asked.policy != Policy():
            return ""
        (conjunction,) = asked.conjunctions
        *_, last = conjunction.instances
        kept = tuple(one for one in conjunction.predicates if one.slots[0].topic != last)
        if not kept or is_counted(asked) or any(len(p.slots) > 1 for p in conjunction.predicates):
            return ""
        shorter = msgspec.structs.replace(asked, conjunctions=(Conjunction(kept),))
        return shorter.canonical

    @property
    def text(self) -> str:
        """As a history says it; nothing without correlation."""
        return "" if self.subscription is None else str(self.subscription)

    @property
    def signature(self) -> Signature:
        if self.subscription is None:
            return (self.topic,)
        return signature_of(self.subscription.conjunctions[0])

    @property
    def filter(self) -> Filter:
        if self.subscription is None:
            return Filter({self.topic: ALL})
        return filter_of(self.subscription)


def wanted(subscription: Subscription) -> tuple[Wanted, ...]:
    """The conjunctions of a subscription, each as a subscription of its own."""
    replace = msgspec.structs.replace
    return tuple(
        Wanted(replace(subscription, conjunctions=(one,)), number)
        for number, one in enumerate(subscription.conjunctions, 1)
    )


def subscribed(one: Wanted, cause: int) -> Note:
    """As a history says that a session is live."""
    return Note(one.text, "subscribe", one.signature, (), cause)


class Stream(msgspec.Struct):
    """One session as its subscriber sees it."""

    wanted: Wanted
    inflow: Inflow
    name: str
    key: tuple[str, str]
    """Breaks ties of time by what is asked: the same at every subscriber (erratum 8)."""
    after: int
    """Nothing in the session is older."""
    frontier: Place
    """What comes lies beyond this."""
    stamped: bool = False
    """Events carry the times of their roots."""
    mixed: bool = False
    """Those of several roots, so that two events may have the same."""
    began_at: Instant = 0
    """When the present stage began, or was pushed last."""
    pushed: int = 0
    """How often."""
    stage: Stage = "attaching"
    cut: int = 0
    queues_cut: int = 0
    queues: bytes = b""
    """A donor's queues, and the cut that they belong to."""
    lent: bool = False
    """They are those of a shorter conjunction."""
    waiting: list[Ev] = []
    """Events that wait for their turn."""
    marked: int = 0
    """The time up to which a mark was asked for."""
    marked_at: Instant = 0
    """And when."""

    @property
    def consumer(self) -> str:
        return self.inflow.consumer

    @property
    def head(self) -> Ev | None:
        """The next event to be fed."""
        return self.waiting[0] if self.waiting else None

    @property
    def done(self) -> int:
        """Below this, nothing is needed again, not even after a crash."""
        return self.waiting[0].n if self.waiting and self.stage == "live" else self.inflow.next

    def attach(self) -> Attach:
        """The wish for the session."""
        wanted = self.wanted
        return Attach(
            name_of(wanted.signature),
            self.consumer,
            self.inflow.session,
            wanted.conjunction,
            wanted.filter,
            self.after,
            wanted.prefix,
        )

    def mark(self, now: Instant, ts: int) -> Advance:
        """The wish that it passes a time."""
        self.marked, self.marked_at, inflow = ts, now, self.inflow
        return Advance(inflow.merger, inflow.consumer, inflow.session, ts, inflow.due)

    def complete(self) -> Complete:
        """The queues of the cut are here."""
        inflow = self.inflow
        return Complete(inflow.merger, inflow.consumer, inflow.session, self.cut)

    def push(self, now: Instant, options: MergingOptions) -> Attach | Complete | Recut | None:
        """What it still needs to become live and is overdue; said again after twice the time,
        because who is busy with many that join is not helped by more of the same."""
        wait_us = options.recut_us if self.stage == "waiting" else options.repeat_us
        wait_us <<= min(self.pushed, _PUSHED_MAX)
        full = self.stage == "waiting" and len(self.waiting) > options.held_count_max
        if self.stage == "live" or (now - self.began_at <= wait_us and not full):
            return None
        self.began_at, self.pushed = now, self.pushed + 1
        if self.stage == "attaching":
            return self.attach()
        if self.has_queues and not full:
            return self.complete()
        inflow = self.inflow
        return Recut(inflow.merger, inflow.consumer, inflow.session, self.cut)

    def keep(self, items: list[Ev]) -> None:
        """Events in their turn, given away."""
        if not items:
            return
        self.frontier = max(self.frontier, beyond(items[-1], mixed=self.mixed))
        if self.stage == "attaching":
            return
        if self.waiting:
            self.waiting += items
        else:
            self.waiting = items  # mostly: nothing waits, and nothing is copied

    def take(self, now: Instant, item: Item) -> bool:
        """Another item in its turn; True if it made the session live."""
        self.frontier = max(self.frontier, beyond(item, mixed=self.mixed))
        if self.stage == "live":
            return False
        if isinstance(item, Start):
            self.waiting = []
            self.cut, self.lent = item.cut, item.prefix
            self.began_at, self.pushed = now, 0
            self.stage = "waiting" if item.donor else "live"
            return not item.donor
        if isinstance(item, Live) and self.has_queues:
            self.stage = "live"
            return True
        return False

    @property
    def has_queues(self) -> bool:
        """The queues of the cut that counts are here."""
        return self.stage == "waiting" and self.queues_cut == self.cut

    def given(self, cut: int, queues: bytes) -> None:
        """Queues of a donor; those of an older cut than is known are worth nothing."""
        if self.stage != "live" and cut >= max(self.cut, self.queues_cut):
            self.queues_cut, self.queues = cut, queues
