"""What a causal client makes durable, so that a life after a crash goes on where the last ended."""

from __future__ import annotations

import msgspec

from concordant.causal.messages import Carried
from concordant.causal.vector import Vector
from concordant.model.event import Event


class Published(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An event that is to be ordered."""

    event: Event
    topics: tuple[str, ...]


class Accepted(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A broker has this publication."""

    number: int
    broker: str
    context: Vector
    round: int


class Moved(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A new session with these topics; the new ones among them after the given rounds."""

    session: int
    topics: tuple[str, ...]
    joined_at: dict[str, int]


class Caught(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The catch-up is over, and the client has everything up to here."""

    last: Vector


class Joined(msgspec.Struct, frozen=True, tag=True, gc=False):
    """From here on, everything that is published to these topics is delivered."""

    topics: tuple[str, ...]


class Passed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An event is, or is about to be, delivered; or it is nothing for the application."""

    carried: Carried
    silent: bool


class Gap(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Of these topics something is missing for good; the application is told."""

    topics: tuple[str, ...]


RECORDS = (Published, Accepted, Moved, Caught, Joined, Passed, Gap)
