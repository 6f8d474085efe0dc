"""Links over NATS: the connections of a mesh as chunks between the nodes' subjects."""

from __future__ import annotations

from collections.abc import Iterable

from concordant.net.link import Identity
from concordant.net.mesh import Links, MeshOptions, Reader, Writer
from concordant.net.nats import NatsServer
from concordant.net.nats_chunks import Chunks, Connection


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
        self._chunks = Chunks(
            server,
            me.node,
            lambda node: server.subject(me.cluster, "node", node),
            knows=lambda node: node in self._peers,
            welcome=self._welcome,
            count=self._count,
        )
        self._made_count = 0

    @property
    def cut_count(self) -> int:
        """Connections cut because a chunk was missing."""
        return self._chunks.cut_count

    async def start(self) -> None:
        """Listen, and connect to the peers with greater names.

        Those with smaller names are told that we are here, so that they connect at once.
        """
        await self._chunks.start()
        self._connect_to(self._peers)
        for name in self._peers:
            if name < self.me.node:
                await self._chunks.cut_all(name)

    async def stop(self) -> None:
        """Say good-bye and close everything; the server is the caller's."""
        await super().stop()
        await self._chunks.stop()

    async def _open(self, name: str) -> tuple[Reader, Writer]:
        self._made_count += 1
        connection = self._chunks.open(name, f"{self.me.life}-{self._made_count}")
        return connection, connection

    def _welcome(self, connection: Connection) -> bool:
        welcome = connection.peer < self.me.node
        if welcome:
            self._spawn(self._accept(connection, connection))
        return welcome
