"""What brokers and clients of the overlay tell each other about regular traffic.

Links between them are first in, first out and lose nothing; `route.link` makes such links of any
others. An id names one advertisement or subscription for ever: whoever subscribes again takes a new
one, so that what is under way for the old one can do no harm.
"""

from __future__ import annotations

import msgspec

from concordant.model.event import Event
from concordant.route.filter import Filter


class Hello(msgspec.Struct, frozen=True, tag=True):
    """A client begins a life without memory; its broker forgets what it waited for from it."""


class Welcome(msgspec.Struct, frozen=True, tag=True):
    """What the broker has on record for the client: (id, filter) of each."""

    advertisements: tuple[tuple[str, Filter], ...] = ()
    subscriptions: tuple[tuple[str, Filter], ...] = ()


class Advertised(msgspec.Struct, frozen=True, tag=True):
    """Somebody there is going to publish such events."""

    id: str
    filter: Filter


class Unadvertised(msgspec.Struct, frozen=True, tag=True):
    """And no longer."""

    id: str


class Subscribed(msgspec.Struct, frozen=True, tag=True):
    """Somebody there wants such events."""

    id: str
    filter: Filter


class Unsubscribed(msgspec.Struct, frozen=True, tag=True):
    """And no longer."""

    id: str


class Published(msgspec.Struct, frozen=True, tag=True):
    """An event on its way."""

    event: Event


Regular = Hello | Welcome | Advertised | Unadvertised | Subscribed | Unsubscribed | Published
