"""What clients and brokers make durable, so that a life after a crash goes on where it ended.

A broker keeps every event that it delivers before it tells anybody, in the form in which it travels
(`messages.Ordered`), and now and then its whole state in place of all that.
"""

from __future__ import annotations

import msgspec

from concordant.causal.messages import Carried, Id, Ordered
from concordant.causal.vector import Vector
from concordant.machine.effects import Delivery
from concordant.machine.inputs import Record
from concordant.machine.saved import Saved
from concordant.model.event import Event

GAP = "gap"
"""The name of the subscription of a delivery that says that something is missing."""


class Published(msgspec.Struct, frozen=True, tag=True, gc=False):
    """An event that is to be ordered."""

    event: Event
    topics: tuple[str, ...]


class Learnt(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What is published from now on comes after this as well."""

    context: Vector
    round: int


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


class Released(msgspec.Struct, frozen=True, tag=True, gc=False):
    """In one order for all: what has a round up to this is, or is about to be, delivered."""

    round: int
    repeated: tuple[Id, ...] = ()
    """But for these, which were delivered at an earlier place, or were too old there."""


class Gap(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Of these topics something is missing for good; the application is told."""

    topics: tuple[str, ...]

    def delivery(self, position: int) -> Delivery:
        """A delivery without events, that says it."""
        return Delivery((), position, False, GAP, key=self.topics)


class Retired(msgspec.Struct, frozen=True, tag="CausalRetired", gc=False):
    """A source that this client published for will not come again."""

    source: str


CLIENT_RECORDS: tuple[type[Record], ...] = (
    Published,
    Learnt,
    Accepted,
    Moved,
    Caught,
    Joined,
    Passed,
    Released,
    Gap,
    Retired,
    Saved,
)


# --- of brokers ---------------------------------------------------------------------------------


class Promised(msgspec.Struct, frozen=True, tag="CausalPromised", gc=False):
    """No greater round was shown to anybody."""

    round: int


class Died(msgspec.Struct, frozen=True, tag=True, gc=False):
    """These brokers are held for dead; and, when that is agreed, what exists of their events."""

    dead: tuple[str, ...]
    kept: dict[str, dict[int, dict[str, int]]] | None


class Ended(msgspec.Struct, frozen=True, tag=True, gc=False):
    """This broker is held for dead by others, and has stopped for good."""


class Condensed(msgspec.Struct, frozen=True, tag="CausalCondensed", gc=False):
    """The state, in place of all records before."""

    state: bytes


BROKER_RECORDS: tuple[type[Record], ...] = (Ordered, Promised, Died, Ended, Condensed)
