"""The nodes of a cluster over NATS: one connection to the servers, links and topics over it.

The only module of the node that needs nats-py; it is imported when a cluster file asks for it.
"""

from __future__ import annotations

import msgspec

from concordant.errors import UsageError
from concordant.net.cluster import Cluster
from concordant.net.link import Identity
from concordant.net.nats import NatsOptions, NatsServer
from concordant.net.nats import connect as connect_to_server
from concordant.net.nats_carrier import NatsCarrier
from concordant.net.nats_links import NatsMesh
from concordant.wire.messages import Codec


def options_of(cluster: Cluster, *, place: str) -> NatsOptions:
    """The table [nats] of a cluster file."""
    try:
        return msgspec.convert(cluster.nats, NatsOptions)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), place=f"{place}: [nats]") from None


async def connect(
    me: Identity, cluster: Cluster, codec: Codec, *, place: str
) -> tuple[NatsServer, NatsMesh, NatsCarrier]:
    """A connection to the servers, and what a node needs over it."""
    server = await connect_to_server(options_of(cluster, place=place), name=me.node)
    mesh = NatsMesh(me, cluster.names, server)
    carrier = NatsCarrier(mesh, codec)
    await mesh.start()
    await carrier.start()
    return server, mesh, carrier
