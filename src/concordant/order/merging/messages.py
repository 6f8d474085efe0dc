"""What mergers, their replicas, publishers and subscribers say to each other.

Everything is addressed by merger, consumer and index, and may be lost, doubled and overtaken: each
message is repeated until its effect is seen. A *consumer* of a merger is a subscriber's conjunction
(`address conjunction`) or a side of a child merger (`merger side`); its session number grows each
time that it attaches again.

The items of a merger are numbered from 0. A consumer gets those that pass its filter and those that
are for it alone, so what many of them get is the same and is sent to all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter

import msgspec

from concordant.errors import PeerError
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.order.merging.filters import Filter

Consumer = str


# --- items: what a stream of a merger consists of -------------------------------------------------


class Ev(msgspec.Struct, frozen=True, tag="e", array_like=True, gc=False):
    """The next event, with its number in the stream and its logical time."""

    n: int
    ts: int
    event: Event


event_of = attrgetter("event")


class Widened(msgspec.Struct, frozen=True, tag="f", array_like=True, gc=False):
    """For a child: from here on its filter of this version is in force."""

    n: int
    ts: int
    version: int


class Start(msgspec.Struct, frozen=True, tag="s", array_like=True, gc=False):
    """For a subscriber: its session begins here, with the donor's queues as they are here, or with
    empty ones."""

    n: int
    ts: int
    donor: Consumer
    cut: int
    prefix: bool = False
    """The donor has the conjunction without its last topic."""


class Cut(msgspec.Struct, frozen=True, tag="c", array_like=True, gc=False):
    """For a donor: send the joiner your queues as they are here."""

    n: int
    ts: int
    joiner: Consumer
    session: int
    cut: int
    prefix: bool = False
    """The joiner asks for one topic more."""


class Lent(msgspec.Struct, frozen=True, tag="b", array_like=True, gc=False):
    """For a child: here a subscriber was cut for one of the child's; without a donor there is none
    that has queues to lend."""

    n: int
    ts: int
    joiner: Consumer
    session: int
    cut: int
    donor: Consumer

    @property
    def joins(self) -> tuple[Consumer, int, int]:
        """Who joins, and by which cut."""
        return (self.joiner, self.session, self.cut)


class Live(msgspec.Struct, frozen=True, tag="l", array_like=True, gc=False):
    """For a subscriber: the join is complete, and deliveries begin."""

    n: int
    ts: int


class Past(msgspec.Struct, frozen=True, tag="p", array_like=True, gc=False):
    """A progress mark for all: what follows is younger than `ts`."""

    n: int
    ts: int


Item = Ev | Widened | Start | Cut | Lent | Live | Past


# --- commands: what a merger's log consists of ----------------------------------------------------


class Put(msgspec.Struct, frozen=True, tag="put", array_like=True, gc=False):
    """Root: the next events of a publisher, numbered from `n`."""

    publisher: str
    n: int
    events: tuple[Event, ...]
    hint: Instant


class Take(msgspec.Struct, frozen=True, tag="take", array_like=True, gc=False):
    """The items of a parent from `index` up to `end`, as far as they are for this merger."""

    life: int
    side: int
    index: int
    end: int
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
    prefix: str = ""
    """The same without its last topic, if its queues may be lent; else nothing."""


class Borrow(msgspec.Struct, frozen=True, tag="borrow", array_like=True, gc=False):
    """A child asks for the queues of a subscriber, for one of its own that asks for more."""

    merger: str
    consumer: Consumer
    session: int
    joiner: Consumer
    number: int
    """The session of the joiner."""
    cut: int
    conjunction: str


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
    read: int = 0
    """What is below was read: a mark that is there was read in a life that ended."""


Control = Attach | Borrow | Link | Detach | Complete | Recut | Advance
"""Commands that consumers send themselves; the leader logs them."""

LogCommand = Put | Take | Control


# --- streams --------------------------------------------------------------------------------------

_EVENTS = frozenset({Ev})

_PACKED_COUNT_MAX = 256
"""Unpacked batches that are remembered: the same one is looked at more than once."""

_unpack = msgspec.msgpack.Decoder(tuple[Item, ...]).decode
packed = msgspec.msgpack.Encoder().encode
"""Items as bytes."""


@lru_cache(maxsize=_PACKED_COUNT_MAX)
def only_events(data: bytes) -> bool:
    """Is every item an event?"""
    return _EVENTS.issuperset(map(type, unpacked(data)))


@lru_cache(maxsize=_PACKED_COUNT_MAX)
def unpacked(data: bytes) -> tuple[Item, ...]:
    """Items from bytes; what is none is refused, and what is not in its order."""
    try:
        items = _unpack(data)
    except msgspec.MsgspecError as error:
        raise PeerError(f"a batch has no items: {error}") from None
    if any(one.n >= other.n for one, other in pairwise(items)):
        raise PeerError("a batch has items out of order")
    return items


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
    leaves: bool = False
    """Another replica is asked from now on: send nothing more."""


class Batch(msgspec.Struct, frozen=True, tag=True, gc=False):
    """What there is for a consumer from `first` up to `end`; also an empty one says that somebody
    is there. It is for one consumer, which it names, or for many."""

    merger: str
    first: int
    end: int
    items: bytes
    """See `packed`."""
    consumer: Consumer = ""
    session: int = 0
    base: int = 0
    """For one: what is below is not for it, or it said that it has done with it."""
    begin: int = 0
    """For one: where its session began. By this number it is named where many are."""
    many: tuple[int, ...] = ()
    """Where the sessions of those began who get it."""


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


def check(batch: Batch) -> None:
    """Refuse a batch whose items are not where it says."""
    items = unpacked(batch.items)
    if items and not batch.first <= items[0].n <= items[-1].n < batch.end:
        raise PeerError("a batch has items that lie elsewhere")
    if batch.first > batch.end:
        raise PeerError("a batch ends before it begins")


# --- publishers -----------------------------------------------------------------------------------


class Offer(msgspec.Struct, frozen=True, tag=True, gc=False):
    """Events of a publisher for the root of their topic, numbered from `n`."""

    topic: str
    n: int
    events: tuple[Event, ...]

    def one_by_one(self) -> Iterator[Offer]:
        """The same, an event at a time."""
        return (Offer(self.topic, n, (event,)) for n, event in enumerate(self.events, self.n))


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
    *(Attach, Borrow, Link, Detach, Complete, Recut, Advance),
    *(Pull, Batch, Ended, Queues, Offer, Accepted, Elsewhere, Reached),
)
"""Beside the messages of replicated logs."""
