"""A subscriber's session with a merger: from the wish to join to the events that it feeds.

A session begins with `Start`. Without a donor it is live at once, with empty queues. With a donor,
items are kept until the donor's queues of that cut are here and the merger has said `Live`; a later
`Start` makes everything before it void. Only a live session delivers: that is what makes it safe
that a donor may die at any moment. The module knows one session; the order among the sessions of a
subscriber is the subscriber's matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

from concordant.machine.instant import Instant
from concordant.model.subscription import Subscription
from concordant.order.merging.filters import ALL, Filter, filter_of
from concordant.order.merging.inflow import Inflow
from concordant.order.merging.messages import Attach, Ev, Item, Live, Start
from concordant.order.merging.overlay import Signature, name_of, signature_of
from concordant.order.merging.stamps import Place, beyond

Stage = Literal["attaching", "waiting", "live"]


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


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """Events with successive indexes, from `index` on, that wait for their turn."""

    index: int
    items: tuple[Ev, ...]

    def after(self, count: int) -> Kept:
        """Without so many of the first."""
        return Kept(self.index + count, self.items[count:]) if count else self


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
    stage: Stage = "attaching"
    cut: int = 0
    queues_cut: int = 0
    queues: bytes = b""
    """A donor's queues, and the cut that they belong to."""
    waiting: list[Kept] = []
    fed: int = 0
    """How many of the first that wait were fed already."""
    marked: int = 0
    """The time up to which a mark was asked for."""

    @property
    def consumer(self) -> str:
        return self.inflow.consumer

    @property
    def head(self) -> Ev | None:
        """The next event to be fed."""
        return self.waiting[0].items[self.fed] if self.waiting else None

    @property
    def head_index(self) -> int:
        """Its index, if there is one."""
        return self.waiting[0].index + self.fed

    def waiting_items(self) -> Iterator[tuple[int, Ev]]:
        """Events that wait, with their indexes."""
        fed = self.fed
        for kept in self.waiting:
            yield from enumerate(kept.items[fed:], kept.index + fed)
            fed = 0

    @property
    def last(self) -> Ev:
        """The last event that waits."""
        return self.waiting[-1].items[-1]

    @property
    def done(self) -> int:
        """Below this, nothing is needed again, not even after a crash."""
        return self.head_index if self.waiting and self.stage == "live" else self.inflow.next

    @property
    def waiting_count(self) -> int:
        return sum(len(kept.items) for kept in self.waiting) - self.fed

    def pop(self, count: int) -> None:
        """So many are fed."""
        self.fed += count
        while self.waiting and self.fed >= len(self.waiting[0].items):
            self.fed -= len(self.waiting.pop(0).items)

    def give(self) -> list[Kept]:
        """All that wait are fed."""
        waiting = [self.waiting[0].after(self.fed), *self.waiting[1:]] if self.waiting else []
        self.waiting, self.fed = [], 0
        return waiting

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
        )

    def keep(self, kept: Kept) -> None:
        """Events in their turn."""
        self.frontier = max(self.frontier, beyond(kept.items[-1], mixed=self.mixed))
        if self.stage != "attaching":
            self.waiting.append(kept)

    def take(self, now: Instant, item: Item) -> bool:
        """Another item in its turn; True if it made the session live."""
        self.frontier = max(self.frontier, beyond(item, mixed=self.mixed))
        if self.stage == "live":
            return False
        if isinstance(item, Start):
            self.waiting, self.fed = [], 0
            self.cut, self.began_at = item.cut, now
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
