"""What one isolated transaction sees and does at one broker, before anybody else sees it.

A context stands on the tables as they were when it was opened (its base) with its own changes on
top. Two transactions clash at a broker if what one of them reads there, the other writes. The
module knows when an operation is seen and what clashes; it sends nothing.
"""

from __future__ import annotations

import msgspec

from concordant.model.event import Event
from concordant.route.filter import Filter
from concordant.route.router import Advertisement, Subscription
from concordant.transact.acks import Acks
from concordant.transact.messages import OperationKind


class Write(msgspec.Struct, frozen=True):
    """An operation as another transaction may clash with it."""

    kind: OperationKind
    hop: str
    id: str = ""
    filter: Filter = Filter()
    event: Event | None = None

    @property
    def subscribes(self) -> bool:
        return self.kind in ("subscribe", "unsubscribe")

    @property
    def advertises(self) -> bool:
        return self.kind in ("advertise", "unadvertise")

    @property
    def ends(self) -> bool:
        return self.kind in ("unsubscribe", "unadvertise")


class Context(msgspec.Struct):
    """A transaction at a broker."""

    base: int
    """The last change of the tables that it sees."""
    advertisements: dict[str, Advertisement] = {}
    """Added by it."""
    subscriptions: dict[str, Subscription] = {}
    deleted: dict[str, bool] = {}
    sent: dict[tuple[str, str], bool] = {}
    """Subscriptions that it sent to neighbours."""
    unsent: dict[tuple[str, str], bool] = {}
    """And those that it took back."""
    ops: list[Write] = []
    acks: Acks = msgspec.field(default_factory=Acks)
    outbox: list[tuple[str, str, Event]] = []
    parts: dict[str, bool] = {}
    stale: dict[str, bool] = {}

    @property
    def writes(self) -> list[Write]:
        return [one for one in self.ops if one.event is None]


def new_context(base: int) -> Context:
    return Context(base, {}, {}, {}, {}, {}, [], Acks({}, {}), [], {}, {})


class Dead(msgspec.Struct, frozen=True):
    """An entry that is no more, for contexts that still see it."""

    id: str
    filter: Filter
    hop: str
    subscription: bool
    born: int
    died: int


def clash(mine: list[Write], theirs: list[Write], subscriptions: list[Filter]) -> bool:
    """Does anything that one transaction did here depend on what the other writes?

    The paper validates publications only (algorithm 3): then an advertisement and a subscription
    that are committed at the same time never find each other.
    """
    return any(_clash(one, other, subscriptions) for one in mine for other in theirs)


def _clash(mine: Write, other: Write, subscriptions: list[Filter]) -> bool:
    if mine.event is not None:
        return other.subscribes and other.filter.matches(mine.event)
    if mine.id == other.id and (mine.ends or other.ends):
        return True
    if mine.subscribes != other.subscribes:
        return mine.filter.overlaps(other.filter)
    if mine.advertises and mine.hop == other.hop and (mine.ends or other.ends):
        return any(
            mine.filter.overlaps(one) and other.filter.overlaps(one) for one in subscriptions
        )
    return False
