"""What mergers, their replicas, publishers and subscribers say to each other.

Everything is addressed by merger, consumer and index, and may be lost, doubled and overtaken: each
message is repeated until its effect is seen. A *consumer* of a merger is a subscriber's conjunction
(`address conjunction`) or a side of a child merger (`merger side`); its session number grows each
time that it attaches again, and the items of a session are numbered from 0.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec

from concordant.errors import PeerError
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.order.merging.filters import Filter

Consumer = str


# --- items: what a stream of a merger consists of -------------------------------------------------


class Ev(msgspec.Struct, frozen=True, tag="e", array_like=True, gc=False):
    """The next event, with its logical time."""

    ts: int
    event: Event


class Widened(msgspec.Struct, frozen=True, tag="f", array_like=True, gc=False):
    """From here on the child's filter of this version is in force."""

    ts: int
    version: int


class Start(msgspec.Struct, frozen=True, tag="s", array_like=True, gc=False):
    """The session begins here: with the donor's queues as they are here, or with empty ones."""

    ts: int
    donor: Consumer
    cut: int


class Cut(msgspec.Struct, frozen=True, tag="c", array_like=True, gc=False):
    """Send the joiner your queues as they are here."""

    ts: int
    joiner: Consumer
    session: int
    cut: int


class Live(msgspec.Struct, frozen=True, tag="l", array_like=True, gc=False):
    """The join is complete: the session's deliveries begin."""

    ts: int


class Past(msgspec.Struct, frozen=True, tag="p", array_like=True, gc=False):
    """A progress mark: what follows is younger than `ts`."""

    ts: int


Item = Ev | Widened | Start | Cut | Live | Past


# --- commands: what a merger's log consists of ----------------------------------------------------


class Put(msgspec.Struct, frozen=True, tag="put", array_like=True, gc=False):
    """Root: the next events of a publisher, numbered from `n`."""

    publisher: str
    n: int
    events: tuple[Event, ...]
    hint: Instant


class Take(msgspec.Struct, frozen=True, tag="take", array_like=True, gc=False):
    """The next items of a parent, from `index` on."""

    life: int
    side: int
    index: int
    items: tuple[Item, ...]
    hint: Instant


class Attach(msgspec.Struct, frozen=True, tag="attach", array_like=True, gc=False):
    """A subscriber's conjunction wants a stream; nothing in it is older than `after`."""

    merger: str
    consumer: Consumer
    session: int
    conjunction: str
    """Its canonical text with policies: who has the same one may be asked for its queues."""
    filter: Filter
    after: int = 0


class Link(msgspec.Struct, frozen=True, tag="link", array_like=True, gc=False):
    """A child merger wants a stream with this version of its filter."""

    merger: str
    consumer: Consumer
    session: int
    version: int
    filter: Filter


class Detach(msgspec.Struct, frozen=True, tag="detach", array_like=True, gc=False):
    """A session ends."""

    merger: str
    consumer: Consumer
    session: int


class Complete(msgspec.Struct, frozen=True, tag="complete", array_like=True, gc=False):
    """The joiner has the queues of this cut."""

    merger: str
    consumer: Consumer
    session: int
    cut: int


class Recut(msgspec.Struct, frozen=True, tag="recut", array_like=True, gc=False):
    """The queues of this cut do not come: cut again."""

    merger: str
    consumer: Consumer
    session: int
    cut: int


class Advance(msgspec.Struct, frozen=True, tag="advance", array_like=True, gc=False):
    """Somebody waits for this stream to pass a time: mark it."""

    merger: str
    consumer: Consumer
    session: int
    ts: int


Control = Attach | Link | Detach | Complete | Recut | Advance
"""Commands that consumers send themselves; the leader logs them."""

LogCommand = Put | Take | Control


# --- streams --------------------------------------------------------------------------------------

_PACKED_COUNT_MAX = 256
"""Unpacked batches that are remembered: the same one is looked at more than once."""

_unpack = msgspec.msgpack.Decoder(tuple[Item, ...]).decode
packed = msgspec.msgpack.Encoder().encode
"""Items as bytes."""


@lru_cache(maxsize=_PACKED_COUNT_MAX)
def unpacked(data: bytes) -> tuple[Item, ...]:
    """The items of a batch; what is none is refused."""
    try:
        return _unpack(data)
    except msgspec.MsgspecError as error:
        raise PeerError(f"a batch has no items: {error}") from None


class Pull(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Send items from `start` on, up to and without `end`; what is below `done` never again."""

    merger: str
    consumer: Consumer
    session: int
    done: int
    start: int
    end: int
    again: bool = False
    """Something is missing: send again what was sent before, from `start` on."""


class Batch(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Items of a session, numbered from `first`; also an empty one says that somebody is there."""

    merger: str
    consumer: Consumer
    session: int
    first: int
    items: bytes
    """See `packed`: what many consumers get is made bytes once."""
    base: int = 0
    """What is below was done with, says the consumer, and is gone."""


class Ended(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The session is over."""

    merger: str
    consumer: Consumer
    session: int


class Queues(msgspec.Struct, frozen=True, tag=True, gc=False):
    """From a donor to a joiner: the queues at a cut."""

    consumer: Consumer
    session: int
    cut: int
    state: bytes


# --- publishers -----------------------------------------------------------------------------------


class Accepted(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The root has this publisher's events up to this number for good."""

    topic: str
    n: int


class Elsewhere(msgspec.Struct, frozen=True, tag=True, gc=False):
    """The root's leader is another."""

    topic: str
    leader: str


# --- among the replicas of a merger ---------------------------------------------------------------


class Reached(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Consumers that were heard, and what each of them has done with for good."""

    merger: str
    consumers: tuple[tuple[Consumer, int, int], ...]
    """Consumer, session, and the number below which nothing is asked for again."""


MESSAGES = (
    *(Attach, Link, Detach, Complete, Recut, Advance),
    *(Pull, Batch, Ended, Queues, Accepted, Elsewhere, Reached),
)
"""Beside numbered events and the messages of replicated logs."""
