"""Links over TCP: who listens where, and optional TLS. All else about connections is the mesh's."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping

from concordant.errors import UsageError
from concordant.net.link import FRAME_BYTES_MAX, Identity
from concordant.net.mesh import Links, MeshOptions, Reader, Writer

Address = tuple[str, int]


class Mesh(Links):
    """The links of one node over TCP."""

    def __init__(
        self,
        me: Identity,
        peers: Mapping[str, Address],
        *,
        options: MeshOptions | None = None,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
    ) -> None:
        super().__init__(me, peers, options=options)
        self._addresses = dict(peers)
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int) -> int:
        """Listen, and connect to the peers with greater names; the port that is listened on."""
        try:
            self._server = await asyncio.start_server(
                self._accept, host, port, ssl=self._server_tls, limit=FRAME_BYTES_MAX
            )
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                hint="stop what uses the port, or choose another one",
            ) from None
        self._connect_to(self._peers)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Say good-bye and close everything."""
        if self._server is not None:
            self._server.close()
        await super().stop()
        if self._server is not None:
            await self._server.wait_closed()

    async def _open(self, name: str) -> tuple[Reader, Writer]:
        return await asyncio.open_connection(
            *self._addresses[name], ssl=self._client_tls, limit=FRAME_BYTES_MAX
        )
