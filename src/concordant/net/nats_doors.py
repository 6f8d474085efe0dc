"""Doors over NATS: sessions of applications as chunks between two subjects.

A connection is the same as between nodes (`nats_chunks`), except that anybody may open one: who is
let in is for the session's greeting to say, and the server's permissions come before that.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Coroutine
from typing import Any

from concordant.net.nats import NatsServer
from concordant.net.nats_chunks import Chunks, Connection
from concordant.net.session import Channel, StreamChannel

_NAME = re.compile(r"(door|application) [\w-]{1,200}", re.ASCII)
"""What the two sides are called; a chunk of any other name is nobody's."""

Serve = Callable[[Channel], Coroutine[Any, Any, None]]


class NatsDoors:
    """One end of the connections between applications and nodes: a node's, or an application's."""

    def __init__(self, server: NatsServer, cluster: str, *, connections_max: int) -> None:
        self._server = server
        self._cluster = cluster
        self._connections_max = connections_max
        self._serve: Serve | None = None
        self._chunks: Chunks | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def cut_count(self) -> int:
        """Connections cut because a chunk was missing."""
        return self._chunks.cut_count if self._chunks is not None else 0

    async def answer(self, node: str, serve: Serve) -> None:
        """Be the door of a node."""
        self._serve = serve
        await self._listen(f"door {node}")

    async def call(self) -> None:
        """Be an application."""
        await self._listen(f"application {secrets.token_hex(16)}")

    async def _listen(self, me: str) -> None:
        self._chunks = Chunks(
            self._server,
            me,
            self._subject,
            knows=lambda name: _NAME.fullmatch(name) is not None,
            welcome=self._welcome,
        )
        await self._chunks.start()

    def _subject(self, name: str) -> str:
        kind, _, rest = name.partition(" ")
        return self._server.subject(self._cluster, kind, rest)

    async def open(self, node: str) -> Channel:
        """A channel to the door of a node; whether anybody is there, its greeting will show."""
        assert self._chunks is not None, "`call` comes first"
        connection = self._chunks.open(f"door {node}", secrets.token_hex(8))
        return StreamChannel(connection, connection, side="application")

    def _welcome(self, connection: Connection) -> bool:
        if self._serve is None or self._chunks is None:
            return False
        if len(self._chunks) > self._connections_max:
            return False
        task = asyncio.create_task(self._serve(StreamChannel(connection, connection, side="node")))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        return True

    async def stop(self) -> None:
        """Close all connections; the server is the caller's."""
        if self._chunks is not None:
            await self._chunks.stop()
        await asyncio.gather(*self._serving, return_exceptions=True)
