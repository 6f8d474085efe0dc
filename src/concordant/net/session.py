"""What an application and a node say to each other, and the channels that carry it.

A session is short-lived: a channel may break at any moment and be opened anew, so nothing depends
on it. Events of a publisher are numbered, and repeated until the node has stored them; what the
node has already, it passes over. Deliveries of a subscription are numbered, and kept by the node
until the application has taken them; after a break it says how many it took. So neither is lost or
doubled, whatever becomes of the channel.

The module knows frames and bytes. What a node does with them is the `door`'s matter, when to
connect again the `caller`'s.
"""

from __future__ import annotations

import asyncio
from typing import Literal, Protocol

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Delivery
from concordant.machine.instant import Duration, Instant
from concordant.model.kind import Value
from concordant.net.mesh import Reader, Writer

VERSION = 1
FRAME_BYTES_MAX = 1 << 24
"""A longer frame is refused before it is read."""


PUBLISHES_COUNT_MAX = 64
"""Frames of events under way in one session: not stored, not refused."""


class Knock(msgspec.Struct, frozen=True, array_like=True, tag="knock"):
    """The first frame of an application."""

    version: int
    token: str = ""


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """The first frame of a node."""

    version: int
    cluster: str
    node: str
    batch_count_max: int


class Announce(msgspec.Struct, frozen=True, array_like=True, tag="announce"):
    """I publish under this name."""

    request: int
    source: str
    writer: str
    """Drawn by the application: another one that publishes under the name is told apart."""
    resumes: bool = False
    """On a new channel: refuse me if another application took the name meanwhile."""
    drawn: bool = False
    """The name was drawn, and nobody will come again under it."""


class Announced(msgspec.Struct, frozen=True, array_like=True, tag="announced"):
    """Go on with the number after this one."""

    request: int
    last: int


class Given(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One event to publish."""

    topic: str
    attributes: dict[str, Value]
    time: Instant | None = None
    id: str = ""
    others: tuple[str, ...] = ()
    """Further topics that it is addressed to."""


class Publishes(msgspec.Struct, frozen=True, array_like=True, tag="publishes"):
    """Events of a source, numbered from `first`."""

    request: int
    source: str
    first: int
    events: list[Given]
    known: tuple[bytes, ...] = ()
    """What the application has seen at other nodes, as they sealed it: the events come after."""


class Stored(msgspec.Struct, frozen=True, array_like=True, tag="stored"):
    """Events of a source are durable up to this number."""

    source: str
    last: int


class Unstored(msgspec.Struct, frozen=True, array_like=True, tag="unstored"):
    """The events of a request were refused, and why."""

    request: int
    source: str
    message: str
    hint: str = ""


class Subscribes(msgspec.Struct, frozen=True, array_like=True, tag="subscribes"):
    """Begin a subscription, or go on with one that has this name."""

    request: int
    text: str
    order: str
    strategy: str = ""
    name: str = ""
    """A named one outlives its session, and the node; one without a name ends with its
    application."""
    taken: int | None = None
    """How many deliveries the application took before; None: as many as the node knows of."""
    slow: Literal["cut", "throttle"] = "cut"
    lag_us_max: Duration | None = None
    topics: dict[str, dict[str, str]] = {}
    """Kinds of attributes, by topic, where the cluster does not declare them."""
    id: str = ""
    """Of a subscription without a name, on a new channel: what the node called it."""


class Subscribed(msgspec.Struct, frozen=True, array_like=True, tag="subscribed"):
    """Deliveries follow, from the number after `taken`."""

    request: int
    id: str
    taken: int


class Moves(msgspec.Struct, frozen=True, array_like=True, tag="moves"):
    """Let other nodes serve a subscription from now on; answered by `Subscribed`."""

    request: int
    id: str
    nodes: tuple[str, ...]


class Recalls(msgspec.Struct, frozen=True, array_like=True, tag="recalls"):
    """What has the application seen by a subscription? To be told to another node."""

    request: int
    id: str


class Recalled(msgspec.Struct, frozen=True, array_like=True, tag="recalled"):
    """What it has seen, sealed."""

    request: int
    known: bytes


class Delivers(msgspec.Struct, frozen=True, array_like=True, tag="delivers"):
    """Deliveries of a subscription, numbered from `first`."""

    id: str
    first: int
    deliveries: list[Delivery]


class Took(msgspec.Struct, frozen=True, array_like=True, tag="took"):
    """So many deliveries of a subscription were taken."""

    id: str
    count: int


class Ends(msgspec.Struct, frozen=True, array_like=True, tag="ends"):
    """The application reads a subscription no more."""

    request: int
    id: str
    keep: bool = False
    """The node keeps it for another time; else it is forgotten, name and all."""


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """A subscription is over: it was asked for, or the node cut it off, and why."""

    id: str
    reason: str = ""
    request: int = 0


class Joins(msgspec.Struct, frozen=True, array_like=True, tag="joins"):
    """Let me take part in transactions under this name."""

    request: int
    name: str
    member: str
    """Drawn by the application: another one that takes part under the name is told apart."""
    resumes: bool = False
    """On a new channel: refuse me if another application took the name meanwhile."""


class Joined(msgspec.Struct, frozen=True, array_like=True, tag="joined"):
    """Parcels may follow."""

    request: int
    kinds: tuple[str, ...]
    """The transactions that there are."""
    topics: tuple[str, ...] | None
    """What may be published; None: anything."""


class Parcel(msgspec.Struct, frozen=True, array_like=True, tag="parcel"):
    """Messages between a client of transactions and its broker."""

    name: str
    body: bytes


class Left(msgspec.Struct, frozen=True, array_like=True, tag="left"):
    """Somebody takes part no longer, and why."""

    name: str
    reason: str


class Moved(msgspec.Struct, frozen=True, array_like=True, tag="moved"):
    """What was asked for belongs to another node."""

    request: int
    node: str
    door: str


class Refused(msgspec.Struct, frozen=True, array_like=True, tag="refused"):
    """A request cannot be met."""

    request: int
    message: str
    hint: str = ""
    place: str = ""


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """Nothing to say, and still there."""


class Bye(msgspec.Struct, frozen=True, array_like=True, tag="bye"):
    """The channel ends, and why."""

    reason: str


ToNode = (
    Knock
    | Announce
    | Publishes
    | Subscribes
    | Moves
    | Recalls
    | Took
    | Ends
    | Joins
    | Parcel
    | Alive
)
ToApplication = (
    Welcome
    | Announced
    | Stored
    | Unstored
    | Subscribed
    | Recalled
    | Delivers
    | Ended
    | Joined
    | Parcel
    | Left
    | Moved
    | Refused
    | Alive
    | Bye
)
Frame = ToNode | ToApplication

_encoder = msgspec.msgpack.Encoder()
_decoders = {
    "node": msgspec.msgpack.Decoder(ToNode),
    "application": msgspec.msgpack.Decoder(ToApplication),
}


class Channel(Protocol):
    """Carries frames both ways, in order, until it breaks: then `EOFError` or `OSError`."""

    def send(self, frame: Frame) -> None: ...

    async def drain(self) -> None:
        """Wait until what was sent is on its way: a slow other side slows the sender."""
        ...

    async def receive(self) -> Frame:
        """The next frame; one that breaks the rules is a `PeerError`."""
        ...

    def close(self) -> None: ...


class StreamChannel:
    """Frames over a stream of bytes, each with its length in front."""

    def __init__(
        self, reader: Reader, writer: Writer, *, side: Literal["node", "application"]
    ) -> None:
        """`side` is whose end of the channel this is."""
        self._reader = reader
        self._writer = writer
        self._decoder = _decoders[side]

    def send(self, frame: Frame) -> None:
        body = _encoder.encode(frame)
        if len(body) > FRAME_BYTES_MAX:
            raise UsageError(
                f"{len(body):,} bytes at once are too many",
                hint=f"send at most {FRAME_BYTES_MAX:,}: fewer events in a batch",
            )
        self._writer.write(len(body).to_bytes(4, "big") + body)

    async def drain(self) -> None:
        await self._writer.drain()

    async def receive(self) -> Frame:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        if size > FRAME_BYTES_MAX:
            raise PeerError(f"a frame of {size:,} bytes")
        body = await self._reader.readexactly(size)
        try:
            frame: Frame = self._decoder.decode(body)
            return frame
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise PeerError(f"a frame cannot be read: {error}") from None

    def close(self) -> None:
        self._writer.close()


MEMORY_COUNT_MAX = 64
"""Frames under way in memory, beyond which the sender waits."""


class MemoryChannel:
    """One end of a channel within an event loop; frames are handed over as they are."""

    def __init__(self) -> None:
        self._inbox: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._other = self
        self._room = asyncio.Event()
        self._closed = False

    @classmethod
    def pair(cls) -> tuple[MemoryChannel, MemoryChannel]:
        """Both ends of a new channel."""
        one, other = cls(), cls()
        one._other, other._other = other, one
        return one, other

    def send(self, frame: Frame) -> None:
        if self._closed:
            raise EOFError
        self._other._inbox.put_nowait(frame)

    async def drain(self) -> None:
        while not self._closed and self._other._inbox.qsize() > MEMORY_COUNT_MAX:
            self._room.clear()
            await self._room.wait()

    async def receive(self) -> Frame:
        frame = await self._inbox.get()
        self._other._room.set()
        if frame is None:
            self._inbox.put_nowait(None)  # it stays closed
            raise EOFError
        return frame

    def close(self) -> None:
        for end in (self, self._other):
            end._closed = True
            end._inbox.put_nowait(None)
            end._room.set()
