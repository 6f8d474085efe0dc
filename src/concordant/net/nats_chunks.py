"""Connections over NATS: numbered runs of chunks between two subjects.

Core NATS loses what it cannot deliver at once. So every chunk of a connection has a number; a chunk
that is missing cuts the connection, as a broken cable would cut one of TCP, and whoever uses it
opens another. Who gets a chunk of a connection that it does not know says so, so that the other
side need not wait to find out. What the bytes mean, and who may connect, is unknown here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from nats.aio.msg import Msg

from concordant.errors import UsageError
from concordant.net.nats import NatsServer
from concordant.net.tasks import ended

CHUNK_BYTES_MAX = 1 << 18
"""What waits is sent in chunks of up to so many bytes, or fewer if the server takes only fewer."""
UNREAD_BYTES_MAX = 1 << 25
"""Bytes of a connection that wait to be read; no window lets more be under way."""
HEAD_BYTES = 4_096
"""Room for what stands around the data of a message."""
_CUT = 0
"""The number that says: this connection is over, or was never known."""
_ALL = ""
"""Cut instead of one connection: a new life of the other side began, and knows none of them."""
_LATE_S = 1.0
"""So long the end of connections may take to be told."""


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Some bytes of a connection."""

    source: str
    connection: str
    """Named by the side that connects."""
    number: int
    data: bytes = b""


_decoder = msgspec.msgpack.Decoder(Chunk)
_encoder = msgspec.msgpack.Encoder()


class Chunks:
    """One end of connections: a subject of its own, and what runs over it."""

    def __init__(
        self,
        server: NatsServer,
        me: str,
        subject: Callable[[str], str],
        *,
        knows: Callable[[str], bool] = lambda peer: True,
        welcome: Callable[[Connection], bool] = lambda connection: False,
        count: Callable[[str], None] = lambda reason: None,
    ) -> None:
        """
        `subject` gives the subject of a name. `welcome` is given connections that others open, and
        says whether it takes them; chunks of whom it does not `know` are passed over. `count` is
        told the reasons of what is dropped.
        """
        self.cut_count = 0
        """Connections cut because a chunk was missing."""
        self._server = server
        self._me = me
        self._subject = subject
        self._knows = knows
        self._welcome = welcome
        self._count = count
        self._connections: dict[tuple[str, str], Connection] = {}
        self._sending: set[asyncio.Task[None]] = set()
        self._subscription: Any = None

    def __len__(self) -> int:
        return len(self._connections)

    async def start(self) -> None:
        """Listen to our own subject."""
        longest = self._server.payload_bytes_max
        if longest < 2 * HEAD_BYTES:
            raise UsageError(
                f"the NATS server takes messages of {longest:,} bytes at most",
                hint=f"set its max_payload to {2 * HEAD_BYTES:,} or more",
            )
        self._subscription = await self._server.subscribe(self._subject(self._me), self._take)

    async def stop(self) -> None:
        """Close all connections, and listen no longer; the server is the caller's."""
        for connection in list(self._connections.values()):
            connection.close()
        if self._sending:
            _, late = await asyncio.wait(self._sending, timeout=_LATE_S)
            await ended(*late)
        with suppress(Exception):  # no server, or closed: there is nothing to take back
            await self._subscription.unsubscribe()

    def open(self, peer: str, name: str) -> Connection:
        """A new connection; whether anybody is there, the answer will show."""
        if not self._server.is_connected:
            raise ConnectionError("no NATS server")
        return self._new(peer, name)

    async def cut_all(self, peer: str) -> None:
        """Tell a peer that we know of no connection with it: we are new."""
        await self.put(peer, _ALL, _CUT)

    def _new(self, peer: str, name: str) -> Connection:
        made = self._connections[peer, name] = Connection(self, peer, name)
        return made

    async def _take(self, message: Msg) -> None:
        try:
            chunk: Chunk = _decoder.decode(message.data)
        except (msgspec.DecodeError, ValueError, RecursionError):
            self._count("a chunk cannot be read")
            return
        if not self._knows(chunk.source):
            self._count("a chunk of nobody in the cluster")
            return
        if chunk.connection == _ALL:
            for one in list(self._connections.values()):
                if one.peer == chunk.source:
                    one.end()
            return
        connection = self._connections.get((chunk.source, chunk.connection))
        if connection is not None:
            connection.take(chunk)
        elif chunk.number == 1:
            connection = self._new(chunk.source, chunk.connection)
            connection.take(chunk)
            if not self._welcome(connection):
                self._count("a connection that is not welcome")
                connection.close()
        elif chunk.number != _CUT:
            self._count("a chunk of no connection")
            await self.put(chunk.source, chunk.connection, _CUT)

    # --- what a connection needs ----------------------------------------------------------------

    def forget(self, connection: Connection) -> None:
        """It is over."""
        self._connections.pop((connection.peer, connection.name), None)

    def send_soon(self, connection: Connection) -> asyncio.Task[None]:
        """Start to send what a connection has to send."""
        task = asyncio.create_task(connection.send())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return task

    async def put(self, peer: str, connection: str, number: int, data: bytes = b"") -> None:
        """One chunk to a peer."""
        chunk = _encoder.encode(Chunk(self._me, connection, number, data))
        await self._server.publish(self._subject(peer), chunk)

    @property
    def chunk_bytes_max(self) -> int:
        return min(CHUNK_BYTES_MAX, self._server.payload_bytes_max - HEAD_BYTES)


class Connection:
    """A connection to one peer: bytes in, bytes out."""

    def __init__(self, chunks: Chunks, peer: str, name: str) -> None:
        self.peer = peer
        self.name = name
        self._chunks = chunks
        self._open = True
        self._received = 0
        self._buffer = bytearray()
        self._more = asyncio.Event()
        self._unsent: deque[bytes] = deque()
        """Bounded by whoever writes: it drains, or has a window."""
        self._sent = 0
        self._sending: asyncio.Task[None] | None = None

    # --- in -------------------------------------------------------------------------------------

    def take(self, chunk: Chunk) -> None:
        """The next chunk; another one than the next ends the connection."""
        if chunk.number == _CUT:
            self.end()
        elif chunk.number != self._received + 1:
            self._chunks.cut_count += 1
            self.close()
        elif len(self._buffer) + len(chunk.data) > UNREAD_BYTES_MAX:
            self.close()
        else:
            self._received = chunk.number
            self._buffer += chunk.data
            self._more.set()

    async def readexactly(self, n: int) -> bytes:
        while len(self._buffer) < n:
            if not self._open:
                raise asyncio.IncompleteReadError(bytes(self._buffer), n)
            await self._arrival()
        return await self.read(n)

    async def read(self, n: int) -> bytes:
        while not self._buffer and self._open:
            await self._arrival()
        found = bytes(self._buffer[:n])
        del self._buffer[:n]
        return found

    async def _arrival(self) -> None:
        self._more.clear()
        await self._more.wait()

    def end(self) -> None:
        """Nothing more comes."""
        self._open = False
        self._more.set()
        self._chunks.forget(self)

    # --- out ------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._open:  # else lost, as on a cable that was just cut
            self._unsent.append(data)
            self._send_soon()

    def _send_soon(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = self._chunks.send_soon(self)

    async def send(self) -> None:
        """Send what waits, gathered into chunks, and at the very end that it is over."""
        limit = self._chunks.chunk_bytes_max
        while self._unsent:
            data = bytearray()
            while self._unsent and len(data) < limit:
                data += self._unsent.popleft()
            for start in range(0, len(data), limit):
                self._sent += 1
                piece = bytes(data[start : start + limit])
                await self._chunks.put(self.peer, self.name, self._sent, piece)
        if not self._open:
            await self._chunks.put(self.peer, self.name, _CUT)

    async def drain(self) -> None:
        while self._sending is not None and not self._sending.done():
            await asyncio.shield(self._sending)
        if not self._open:
            raise ConnectionError("the connection is closed")

    def close(self) -> None:
        if self._open:
            self.end()
            self._send_soon()
