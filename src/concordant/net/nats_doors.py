"""Doors over NATS: sessions of applications as numbered chunks between two subjects.

A connection is the same as between nodes (`nats_links`), except that anybody may open one: who is
let in is for the session's greeting to say, and the server's permissions come before that. A lost
chunk cuts the connection, and the application opens another.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import msgspec
from nats.aio.msg import Msg

from concordant.net.nats import NatsServer
from concordant.net.nats_links import CHUNK_BYTES_MAX, Chunk, _Connection
from concordant.net.session import Channel, StreamChannel

_HEAD_BYTES = 4_096
_CUT = 0
_decoder = msgspec.msgpack.Decoder(Chunk)
_encoder = msgspec.msgpack.Encoder()

Serve = Callable[[Channel], Coroutine[Any, Any, None]]


class NatsDoors:
    """One end of the connections between applications and nodes: a node's, or an application's."""

    def __init__(self, server: NatsServer, cluster: str, *, connections_max: int) -> None:
        self.cut_count = 0
        self._server = server
        self._cluster = cluster
        self._connections_max = connections_max
        self._me = ""
        self._serve: Serve | None = None
        self._connections: dict[tuple[str, str], _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscription: Any = None

    async def answer(self, node: str, serve: Serve) -> None:
        """Be the door of a node."""
        self._serve = serve
        await self._listen(f"door {node}")

    async def call(self) -> None:
        """Be an application."""
        await self._listen(f"application {secrets.token_hex(16)}")

    async def _listen(self, me: str) -> None:
        self._me = me
        self._subscription = await self._server.subscribe(self._subject(me), self._take_message)

    async def open(self, node: str) -> Channel:
        """A channel to the door of a node; whether anybody is there, its greeting will show."""
        if not self._server.is_connected:
            raise ConnectionError("no NATS server")
        connection = self._connection(f"door {node}", secrets.token_hex(8))
        return StreamChannel(connection, connection, side="application")

    async def stop(self) -> None:
        """Close all connections; the server is the caller's."""
        for connection in list(self._connections.values()):
            connection.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(Exception):  # no server, or closed: there is nothing to take back
            await self._subscription.unsubscribe()

    def _subject(self, name: str) -> str:
        kind, _, rest = name.partition(" ")
        return self._server.subject(self._cluster, kind, rest)

    def _connection(self, peer: str, name: str) -> _Connection:
        made = self._connections[peer, name] = _Connection(self, peer, name)  # type: ignore[arg-type]
        return made

    async def _take_message(self, message: Msg) -> None:
        try:
            chunk: Chunk = _decoder.decode(message.data)
        except (msgspec.DecodeError, ValueError, RecursionError):
            return
        connection = self._connections.get((chunk.source, chunk.connection))
        if connection is not None:
            connection.take(chunk)
        elif self._serve is not None and chunk.number == 1:
            if len(self._connections) >= self._connections_max:
                return
            connection = self._connection(chunk.source, chunk.connection)
            connection.take(chunk)
            channel = StreamChannel(connection, connection, side="node")
            self._spawn(self._serve(channel))
        elif chunk.number != _CUT:
            await self.put(chunk.source, chunk.connection, _CUT)

    # --- what a connection needs ----------------------------------------------------------------

    def forget(self, connection: _Connection) -> None:
        self._connections.pop((connection.peer, connection.name), None)

    def send_soon(self, connection: _Connection) -> asyncio.Task[None]:
        return self._spawn(connection.send())

    async def put(self, peer: str, connection: str, number: int, data: bytes = b"") -> None:
        chunk = _encoder.encode(Chunk(self._me, connection, number, data))
        await self._server.publish(self._subject(peer), chunk)

    @property
    def chunk_bytes_max(self) -> int:
        return max(1, min(CHUNK_BYTES_MAX, self._server.payload_bytes_max - _HEAD_BYTES))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
