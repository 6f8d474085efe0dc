"""The messages of causal delivery, between brokers and between a broker and its clients.

Who sent a message is not in it: the link says so. Names of brokers serve as names of origins: a
broker that comes back from a crash goes on with its numbers, unless others hold it for dead; then
it never orders anything again.
"""

from __future__ import annotations

import msgspec

from concordant.causal.vector import Entry, Vector
from concordant.machine.inputs import Message
from concordant.model.event import Event

Id = tuple[str, int]
"""Origin and number of an ordered event."""


# --- between brokers --------------------------------------------------------------------------


class Ordered(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An event with its place in the causal order (EVENT)."""

    origin: str
    number: int
    """Counts what the origin ordered: with it, the identity."""
    at: dict[str, int]
    """The position in every topic that it is addressed to."""
    round: int
    """Greater than the round of everything that it follows (a Lamport clock)."""
    past: Vector
    """For every topic, the last positions that it follows, but for what is stable (D)."""
    event: Event

    @property
    def id(self) -> Id:
        return (self.origin, self.number)


class Digest(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What a broker has delivered of its topics, and what it knows that others have."""

    delivered: Vector
    round: int
    acknowledged: dict[str, Vector]
    """By broker: what it and its subscribers have."""
    dead: tuple[str, ...] = ()


class PullPast(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Send what is missing below these positions: something here waits for it."""

    delivered: Vector


class FlushAsk(msgspec.Struct, frozen=True, tag=True, gc=False):
    """These brokers are dead: take nothing more of theirs, and say what you have of it."""

    dead: tuple[str, ...]


class FlushHeld(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What the sender has of the dead brokers' events."""

    dead: tuple[str, ...]
    held: dict[str, dict[int, dict[str, int]]]
    """Origin to number to positions."""


class Flushed(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Of the dead brokers' events, somebody has these; all others are lost for everybody."""

    dead: tuple[str, ...]
    kept: dict[str, dict[int, dict[str, int]]]


class FlushTaken(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The sender knows what is lost."""

    dead: tuple[str, ...]


class Excluded(msgspec.Struct, frozen=True, tag=True, gc=False):
    """To a broker: you are held for dead, stop. To a client: look for another broker."""


class Retired(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The sender has stopped for good: hold it for dead."""


class Resolve(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What does this position follow? Asked for the context of a client from elsewhere."""

    topic: str
    origin: str
    position: int


class Resolved(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A causal past that contains the position."""

    topic: str
    origin: str
    position: int
    delivered: Vector
    round: int


# --- between a broker and its clients -----------------------------------------------------------


class Known(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What an application has seen, for who publishes for it: what it publishes comes after.

    From a subscription to the publisher of its node; by the application itself to another node.
    """

    context: Vector
    round: int


class Submit(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A client publishes (PUB); repeated until it is answered."""

    number: int
    """The client counts its publications."""
    event: Event
    topics: tuple[str, ...]
    context: Vector
    """What the client has delivered or published: all of it, or what is new since `after`."""
    round: int
    after: int = 0
    """The publication that was submitted to this broker before, and must be ordered before; 0 if
    the context is complete."""


class Submitted(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The event is ordered (PUBACK)."""

    number: int
    context: Vector
    """From where on the broker has the event."""
    round: int


class AttachHome(msgspec.Struct, frozen=True, tag=True, gc=False):
    """A client wants these topics from now on; repeated until it is answered."""

    session: int
    topics: tuple[str, ...]
    last: Vector
    """What it has."""
    fresh: tuple[str, ...]
    """Topics of which it wants nothing old."""
    solo: bool
    """One broker serves all of its topics."""
    total: bool = False
    """It wants to know up to which round everything is there."""


class Carried(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An event for a subscriber, with what must come before it (SEVENT)."""

    session: int
    origin: str
    number: int
    at: dict[str, int]
    """Positions in the subscriber's topics."""
    round: int
    predecessors: tuple[Entry, ...]
    """In the profile `local`: the immediate ones."""
    ages: bytes
    """In the profile `rounds`: see `causal.rounds`."""
    event: Event
    again: Vector | None = None
    """Another broker ordered it as well, and its home had that before: there, if it is known."""

    @property
    def id(self) -> Id:
        return (self.origin, self.number)

    @property
    def context(self) -> Vector:
        """What whoever has it knows."""
        return {topic: {self.origin: n} for topic, n in self.at.items()}


class Attached(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What the subscriber missed, and from where on it gets everything."""

    session: int
    floor: Vector
    catchup: tuple[Carried, ...]
    gap: tuple[str, ...]
    """Topics of which something that it missed is no longer kept."""


class DetachHome(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The client has left; repeated until it is answered."""

    session: int


class Detached(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The broker does not, or no longer, serve this session."""

    session: int


class Ack(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What a subscriber has for good, what it need not be sent, and what waits (also a pull)."""

    session: int
    last: Vector
    floor: Vector
    """Up to here it was sent everything when it attached; empty when it has caught up."""
    waiting: tuple[Id, ...]
    round: int = 0
    """If it joins: the last round that it knows, perhaps from a broker that died before others."""
    joining: bool = False
    """It has joined a topic, and waits until older rounds can no longer come."""
    settled: Vector | None = None
    """In one line: what it will not ask for again, if that is not all that it has."""


class Heard(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An answer to every `Ack`: the broker lives, and what it knows of rounds to come."""

    session: int
    rounds: dict[str, int]
    """By topic: every event that is ordered from now on has a greater round; if it joins."""
    complete: dict[str, int] = {}
    """By topic: everything up to this round is among what the broker has, if that was asked for."""
    had: Vector = {}
    """What the broker has of these topics."""
    repeated: tuple[Id, ...] = ()
    """Of that, what stands at an earlier place in the line as well."""


PEER_MESSAGES: tuple[type[Message], ...] = (
    Ordered,
    Digest,
    PullPast,
    FlushAsk,
    FlushHeld,
    Flushed,
    FlushTaken,
    Excluded,
    Retired,
    Resolve,
    Resolved,
)
CLIENT_MESSAGES: tuple[type[Message], ...] = (
    Known,
    Submit,
    Submitted,
    AttachHome,
    Attached,
    Carried,
    DetachHome,
    Detached,
    Ack,
    Heard,
    Excluded,
)
