"""What a client of ordered merging can be asked for, what it makes durable, what it remembers."""

from __future__ import annotations

import msgspec

from concordant.machine.instant import Instant
from concordant.model.subscription import Subscription
from concordant.order.client import ClientState, Published
from concordant.order.merging.messages import Ev
from concordant.order.merging.outlet import Outlet
from concordant.order.merging.stream import Stream, Wanted


class Correlate(msgspec.Struct, frozen=True, gc=False):
    """Request: deliver the relations of a subscription from now on."""

    subscription: Subscription


class Drop(msgspec.Struct, frozen=True, gc=False):
    """Request: deliver no more for the subscription of this name."""

    name: str


class Through(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: the root of a topic has this client's events up to a number."""

    topic: str
    n: int


class Opened(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: a session was asked for."""

    wanted: Wanted
    session: int


class Begun(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: a session is live, with these queues and these events still to be fed."""

    name: str
    next: int
    ts: int
    queues: bytes
    lent: bool
    """The queues are those of a shorter conjunction."""
    kept: tuple[Ev, ...]


class Fed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: events went to the matcher of a session, one after the other."""

    name: str
    items: tuple[Ev, ...]


class Closed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: a conjunction is no longer subscribed."""

    name: str


RECORDS = (Published, Through, Opened, Begun, Fed, Closed)


class MergedState(ClientState, kw_only=True):
    """What is on its way to roots, and the sessions."""

    outlets: dict[str, Outlet] = msgspec.field(default_factory=dict)
    streams: dict[str, Stream] = msgspec.field(default_factory=dict)
    leaving: dict[str, tuple[str, int]] = msgspec.field(default_factory=dict)
    """Consumers whose sessions are to end: merger and session."""
    left_at: Instant = 0
    resting: bool = False
    """Nothing can be overdue soon: it is looked more rarely."""
    look_at: Instant = 0
    """When it is looked next."""
    marking: bool = False
    """The timer is set that asks for marks."""
    sessions: int = 0
    """The number of the last session."""
    positions: dict[str, int] = msgspec.field(default_factory=dict)
    reached: int = 0
    """The greatest logical time that was fed."""
