"""Links over NATS: a connection is a numbered run of chunks between two nodes' subjects.

Core NATS loses what it cannot deliver at once. So every chunk of a connection has a number; a chunk
that is missing cuts the connection, as a broken cable would cut one of TCP, and the link on top
sends again what was not received. Who gets a chunk of a connection that it does not know says so,
so that the other side need not wait to find out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress

import msgspec
from nats.aio.msg import Msg

from concordant.errors import UsageError
from concordant.net.link import FRAME_BYTES_MAX, Identity
from concordant.net.mesh import Links, MeshOptions, Reader, Writer
from concordant.net.nats import NatsServer

CHUNK_BYTES_MAX = 1 << 18
"""What waits is sent in chunks of up to so many bytes, or fewer if the server takes only fewer."""
_HEAD_BYTES = 4_096
"""Room for what stands around the data of a chunk."""
_CUT = 0
"""The number that says: this connection is over, or was never known."""
_ALL = ""
"""Cut instead of one connection: a new life of the node began, and knows none of them."""


class Chunk(msgspec.Struct, frozen=True, array_like=True):
    """Some bytes of a connection."""

    source: str
    connection: str
    """Named by the side that connects."""
    number: int
    data: bytes = b""


_decoder = msgspec.msgpack.Decoder(Chunk)
_encoder = msgspec.msgpack.Encoder()


class NatsMesh(Links):
    """The links of one node over NATS."""

    def __init__(
        self,
        me: Identity,
        peers: Iterable[str],
        server: NatsServer,
        *,
        options: MeshOptions | None = None,
    ) -> None:
        super().__init__(me, peers, options=options)
        self.server = server
        self.cut_count = 0
        """Connections cut because a chunk was missing."""
        self._connections: dict[tuple[str, str], _Connection] = {}
        self._made_count = 0
        self._sending: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Listen to our own subject, and connect to the peers with greater names.

        Those with smaller names are told that we are here, so that they connect at once.
        """
        longest = self.server.payload_bytes_max
        if longest < 2 * _HEAD_BYTES:
            raise UsageError(
                f"the NATS server takes messages of {longest:,} bytes at most",
                hint=f"set its max_payload to {2 * _HEAD_BYTES:,} or more",
            )
        self._subscription = await self.server.subscribe(
            self._subject(self.me.node), self._take_message
        )
        self._connect_to(self._peers)
        for name in self._peers:
            if name < self.me.node:
                await self.put(name, _ALL, _CUT)

    async def stop(self) -> None:
        """Say good-bye and close everything; the server is the caller's."""
        await super().stop()
        if self._sending:
            _, late = await asyncio.wait(self._sending, timeout=1.0)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        with suppress(Exception):  # no server, or closed: there is nothing to take back
            await self._subscription.unsubscribe()

    def _subject(self, node: str) -> str:
        return self.server.subject(self.me.cluster, "node", node)

    async def _open(self, name: str) -> tuple[Reader, Writer]:
        if not self.server.is_connected:
            raise ConnectionError("no NATS server")
        self._made_count += 1
        connection = self._connection(name, f"{self.me.life}-{self._made_count}")
        return connection, connection

    def _connection(self, peer: str, name: str) -> _Connection:
        made = self._connections[peer, name] = _Connection(self, peer, name)
        return made

    def forget(self, connection: _Connection) -> None:
        """It is over."""
        self._connections.pop((connection.peer, connection.name), None)

    def send_soon(self, connection: _Connection) -> asyncio.Task[None]:
        """Start to send what a connection has to send."""
        task = asyncio.create_task(connection.send())
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)
        return task

    async def put(self, peer: str, connection: str, number: int, data: bytes = b"") -> None:
        """One chunk to a peer."""
        chunk = _encoder.encode(Chunk(self.me.node, connection, number, data))
        await self.server.publish(self._subject(peer), chunk)

    @property
    def chunk_bytes_max(self) -> int:
        return max(1, min(CHUNK_BYTES_MAX, self.server.payload_bytes_max - _HEAD_BYTES))

    async def _take_message(self, message: Msg) -> None:
        try:
            chunk: Chunk = _decoder.decode(message.data)
        except (msgspec.DecodeError, ValueError, RecursionError):
            self._count("a chunk cannot be read")
            return
        if chunk.source not in self._peers:
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
        elif chunk.number == 1 and chunk.source < self.me.node:
            connection = self._connection(chunk.source, chunk.connection)
            connection.take(chunk)
            self._spawn(self._accept(connection, connection))
        elif chunk.number != _CUT:
            self._count("a chunk of no connection")
            await self.put(chunk.source, chunk.connection, _CUT)


class _Connection:
    """A connection to one peer: bytes in, bytes out."""

    def __init__(self, mesh: NatsMesh, peer: str, name: str) -> None:
        self.peer = peer
        self.name = name
        self._mesh = mesh
        self._open = True
        self._received = 0
        self._buffer = bytearray()
        self._more = asyncio.Event()
        self._unsent: deque[bytes] = deque()
        """Bounded by the link's window."""
        self._sent = 0
        self._sending: asyncio.Task[None] | None = None

    # --- in -------------------------------------------------------------------------------------

    def take(self, chunk: Chunk) -> None:
        """The next chunk; another one than the next ends the connection."""
        if chunk.number == _CUT:
            self.end()
        elif chunk.number != self._received + 1:
            self._mesh.cut_count += 1
            self.close()
        elif len(self._buffer) + len(chunk.data) > 2 * FRAME_BYTES_MAX:
            self.close()  # more than any window lets be under way
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
        self._mesh.forget(self)

    # --- out ------------------------------------------------------------------------------------

    def write(self, data: bytes) -> None:
        if self._open:  # else lost, as on a cable that was just cut
            self._unsent.append(data)
            self._send_soon()

    def _send_soon(self) -> None:
        if self._sending is None or self._sending.done():
            self._sending = self._mesh.send_soon(self)

    async def send(self) -> None:
        """Send what waits, gathered into chunks, and at the very end that it is over."""
        limit = self._mesh.chunk_bytes_max
        while self._unsent:
            data = bytearray()
            while self._unsent and len(data) < limit:
                data += self._unsent.popleft()
            for start in range(0, len(data), limit):
                self._sent += 1
                piece = bytes(data[start : start + limit])
                await self._mesh.put(self.peer, self.name, self._sent, piece)
        if not self._open:
            await self._mesh.put(self.peer, self.name, _CUT)

    async def drain(self) -> None:
        while self._sending is not None and not self._sending.done():
            await asyncio.shield(self._sending)
        if not self._open:
            raise ConnectionError("the connection is closed")

    def close(self) -> None:
        if self._open:
            self.end()
            self._send_soon()
