"""What a client of ordered merging can be asked for, and what it makes durable."""

from __future__ import annotations

import msgspec

from concordant.model.event import Event
from concordant.model.subscription import Subscription
from concordant.order.client import Published
from concordant.order.merging.stream import Kept, Wanted


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
    kept: tuple[Kept, ...]


class Fed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: an event went to the matcher of a session."""

    name: str
    index: int
    ts: int
    event: Event


class Closed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Durable: a conjunction is no longer subscribed."""

    name: str


RECORDS = (Published, Through, Opened, Begun, Fed, Closed)
