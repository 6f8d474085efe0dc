"""Nodes and applications over NATS: one connection to the servers, and everything else over it.

This module and those below it need nats-py; it is imported when a cluster file or a URL asks for
NATS.
"""

from __future__ import annotations

import msgspec

from concordant.errors import UsageError
from concordant.net.cluster import Cluster
from concordant.net.link import Identity
from concordant.net.nats import NatsOptions, NatsServer
from concordant.net.nats import connect as connect_to_server
from concordant.net.nats_carrier import NatsCarrier
from concordant.net.nats_doors import NatsDoors
from concordant.net.nats_links import NatsMesh
from concordant.net.session import Channel
from concordant.wire.messages import Codec


def options_of(cluster: Cluster, *, place: str) -> NatsOptions:
    """The table [nats] of a cluster file."""
    try:
        return msgspec.convert(cluster.nats, NatsOptions)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), place=f"{place}: [nats]") from None


class OverNats:
    """A connection to the servers, and what a node needs over it."""

    def __init__(self, server: NatsServer, me: Identity, cluster: Cluster, codec: Codec) -> None:
        self.server = server
        self.links = NatsMesh(me, cluster.names, server)
        self.carrier = NatsCarrier(self.links, codec)
        self.doors = NatsDoors(
            server, cluster.cluster.name, connections_max=2 * cluster.limits.sessions_max
        )

    async def stop(self) -> None:
        """Let go of the servers; links and carrier were stopped before."""
        await self.doors.stop()
        await self.server.stop()


async def connect(me: Identity, cluster: Cluster, codec: Codec, *, place: str) -> OverNats:
    """Connect a node."""
    server = await connect_to_server(options_of(cluster, place=place), name=me.node)
    made = OverNats(server, me, cluster, codec)
    await made.links.start()
    await made.carrier.start()
    return made


class Calls:
    """An application's connection to the servers, and the doors that it calls over it."""

    def __init__(self, url: str, cluster: str) -> None:
        self._options = NatsOptions(servers=(url,))
        self._cluster = cluster
        self._server: NatsServer | None = None
        self._doors: NatsDoors | None = None

    async def open(self, node: str) -> Channel:
        """A channel to a node's door; the first call connects to the servers."""
        if self._doors is None:
            self._server = await connect_to_server(self._options, name="application")
            self._doors = NatsDoors(self._server, self._cluster, connections_max=64)
            await self._doors.call()
        return await self._doors.open(node)

    async def stop(self) -> None:
        if self._doors is not None and self._server is not None:
            await self._doors.stop()
            await self._server.stop()
