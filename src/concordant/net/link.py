"""One link between two nodes, without the socket: nothing lost, doubled or overtaken, and bounded.

Each side numbers what it sends and keeps it until the other side says that it was taken. A broken
connection is made anew, each side says what it has, and the rest is sent again. What is under way
is bounded by the window that the receiver grants, what waits by the sender's own bound; whoever
sends faster than the other takes is told to wait.

A node that was restarted forgot what it had received: it comes with another `life`, numbers begin
anew, and what it had not taken is sent again. It may see again what its former life took; protocols
on top expect that.

The link knows frames and numbers. Sockets, time and what a payload means are the driver's.
"""

from __future__ import annotations

from collections import deque
from typing import Literal

import msgspec

from concordant.errors import PeerError

VERSION = 3
FRAME_BYTES_MAX = 1 << 24
"""A longer frame is refused before it is read."""
PAYLOADS_BYTES_MAX = 1 << 18
"""Payloads are gathered into frames of about so many bytes."""


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """The first frame of each side."""

    version: int
    cluster: str
    node: str
    life: str
    """Another one after every restart of the node."""
    peer_life: str = ""
    """The life of the other side that `received` counts."""
    received: int = 0
    window_bytes: int = 1 << 22
    """How many bytes may be under way to me that I have not taken."""
    token: str = ""
    """What the cluster's members show to be let in."""


class Items(msgspec.Struct, frozen=True, array_like=True, tag="items"):
    """Payloads with consecutive numbers."""

    first: int
    payloads: list[bytes]


class Taken(msgspec.Struct, frozen=True, array_like=True, tag="taken"):
    """Everything up to this number was taken by the application."""

    number: int


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """Nothing to say, and still there."""


class Bye(msgspec.Struct, frozen=True, array_like=True, tag="bye"):
    """The link ends, and why."""

    reason: str


Frame = Hello | Items | Taken | Alive | Bye

_decoder = msgspec.msgpack.Decoder(Frame)
_encoder = msgspec.msgpack.Encoder()


def encode_frame(frame: Frame) -> bytes:
    """A frame with its length in front."""
    body = _encoder.encode(frame)
    return len(body).to_bytes(4, "big") + body


def decode_frame(body: bytes) -> Frame:
    """The frame of a body from somewhere."""
    try:
        frame: Frame = _decoder.decode(body)
        return frame
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise PeerError(f"a frame cannot be read: {error}") from None


class Identity(msgspec.Struct, frozen=True):
    """Who a node is to the others."""

    cluster: str
    node: str
    life: str
    token: str = ""
    window_bytes: int = 1 << 22


class Link:
    """This side of a link to one peer, over any number of connections, one at a time."""

    def __init__(self, me: Identity, *, waiting_bytes_max: int = 1 << 24) -> None:
        self.me = me
        self.peer: Hello | None = None
        self._waiting_bytes_max = waiting_bytes_max
        self._under_way: deque[bytes] = deque()
        """Payloads sent on this connection, and not said to be taken; the first has number
        `_first`."""
        self._waiting: deque[bytes] = deque()
        """Payloads to be sent after them."""
        self._first = 1
        self._under_way_bytes = 0
        self._waiting_bytes = 0
        self._received = 0
        self._taken = 0
        self._state: Literal["closed", "greeting", "open"] = "closed"

    # --- a connection begins and ends -----------------------------------------------------------

    def connected(self) -> Hello:
        """A connection is there; what to say first."""
        self._state = "greeting"
        peer_life = self.peer.life if self.peer is not None else ""
        me = self.me
        return Hello(
            VERSION,
            me.cluster,
            me.node,
            me.life,
            peer_life,
            self._received,
            me.window_bytes,
            me.token,
        )

    def disconnected(self) -> None:
        """The connection is gone; what the peer has not taken will be sent again."""
        self._state = "closed"
        self._waiting.extendleft(reversed(self._under_way))
        self._waiting_bytes += self._under_way_bytes
        self._under_way.clear()
        self._under_way_bytes = 0

    @property
    def is_open(self) -> bool:
        return self._state == "open"

    # --- frames in ------------------------------------------------------------------------------

    def receive(self, frame: Frame) -> list[bytes]:
        """Take a frame of the peer; the payloads that are new, in order.

        A frame that breaks the rules is a `PeerError`: the driver closes the connection, and
        nothing has changed.
        """
        if isinstance(frame, Hello):
            self._greet(frame)
            return []
        if self._state != "open":
            raise PeerError(f"'{type(frame).__name__}' before a greeting")
        if isinstance(frame, Items):
            return self._take(frame)
        if isinstance(frame, Taken):
            self._forget(frame.number)
        elif isinstance(frame, Bye):
            raise PeerError(f"the other side ended the link: {frame.reason[:200]}")
        return []

    def _greet(self, hello: Hello) -> None:
        refused = self._refusal(hello)
        if refused:
            raise PeerError(refused)
        known = self.peer is not None and self.peer.life == hello.life
        if known and hello.peer_life == self.me.life:
            self._had(hello.received)
        elif hello.peer_life == self.me.life and hello.received:
            raise PeerError("the other side counts what was never sent")
        else:  # it forgot, or is another: what was not taken gets the first numbers of its new life
            self._first = 1
        if not known:
            self._received = self._taken = 0
        self.peer = hello
        self._state = "open"

    def _had(self, received: int) -> None:
        """On the last connection the peer received up to this number."""
        if not self._first - 1 <= received < self._first + len(self._waiting):
            raise PeerError("the other side counts what was never sent")
        while self._first <= received:
            self._waiting_bytes -= len(self._waiting.popleft())
            self._first += 1

    def _refusal(self, hello: Hello) -> str:
        if self._state != "greeting":
            return "a second greeting"
        if hello.version != VERSION:
            return f"version {hello.version} of the protocol, and this is version {VERSION}"
        if hello.cluster != self.me.cluster:
            return f"it belongs to the cluster {hello.cluster[:80]!r}"
        if hello.token != self.me.token:
            return "it does not know the cluster's token"
        if hello.node == self.me.node:
            return f"it has the name of this node, {hello.node!r}"
        if self.peer is not None and hello.node != self.peer.node:
            return f"it is {hello.node[:80]!r}, and {self.peer.node!r} was expected"
        if hello.window_bytes < 1 or hello.received < 0:
            return "a greeting with impossible numbers"
        return ""

    def _take(self, items: Items) -> list[bytes]:
        new = self._received + 1 - items.first
        if new < 0:
            raise PeerError(f"number {items.first} came where {self._received + 1} was due")
        if not all(items.payloads):
            raise PeerError("an empty payload")
        fresh = items.payloads[new:]
        self._received += len(fresh)
        return fresh

    def _forget(self, number: int) -> None:
        if number >= self._first + len(self._under_way):
            raise PeerError("the other side took what was never sent")
        while self._first <= number:
            self._under_way_bytes -= len(self._under_way.popleft())
            self._first += 1

    # --- frames out -----------------------------------------------------------------------------

    def send(self, payload: bytes) -> bool:
        """Let a payload go when its turn comes; False (and nothing is kept) if too much waits."""
        if self._waiting and self._waiting_bytes + len(payload) > self._waiting_bytes_max:
            return False
        self._waiting.append(payload)
        self._waiting_bytes += len(payload)
        return True

    @property
    def pending_count(self) -> int:
        """Payloads that the peer has not taken."""
        return len(self._under_way) + len(self._waiting)

    def due(self) -> list[Items]:
        """What may go out now: as much as the window lets."""
        frames: list[Items] = []
        if self._state != "open" or self.peer is None:
            return frames
        payloads: list[bytes] = []
        size = 0
        number = self._first + len(self._under_way)
        while self._waiting:
            length = len(self._waiting[0])
            # One may always go, so that a payload larger than the window does not wait for ever.
            if self._under_way and self._under_way_bytes + length > self.peer.window_bytes:
                break
            payload = self._waiting.popleft()
            self._waiting_bytes -= length
            self._under_way.append(payload)
            self._under_way_bytes += length
            payloads.append(payload)
            size += length
            if size >= PAYLOADS_BYTES_MAX or not self._waiting:
                frames.append(Items(number, payloads))
                number += len(payloads)
                payloads, size = [], 0
        if payloads:
            frames.append(Items(number, payloads))
        return frames

    def took(self, count: int) -> Taken:
        """The application took so many payloads more; what to tell the peer."""
        self._taken += count
        return Taken(self._taken)
