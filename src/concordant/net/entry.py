"""Addresses of a bus: what a URL means, how a node is reached there, and whom to trust."""

from __future__ import annotations

import asyncio
import ssl

from concordant.errors import UsageError
from concordant.net.cluster import address_of
from concordant.net.session import FRAME_BYTES_MAX, Channel, StreamChannel


def entry_of(url: str, *, in_memory: bool) -> str:
    """The door of a URL, or the node behind NATS; nothing for the memory."""
    kind, colon, rest = url.partition(":")
    if kind == "memory" and colon and not rest:
        return ""
    if in_memory:
        raise UsageError(
            "strategies and topics are named by the cluster file", hint="leave them out"
        )
    if kind == "tcp" and rest.startswith("//"):
        door = rest.removeprefix("//").rstrip("/")
        address_of(door, place=url)
        return door
    if kind == "nats":
        return nats_parts(url)[2]
    raise UsageError(
        f"{url!r} is no address of a bus",
        hint="write memory:, tcp://host:port of a node's door, or nats://host:port/CLUSTER/NODE",
    )


async def connect(host: str, port: int, tls: ssl.SSLContext | None) -> Channel:
    """A channel to the door of a node."""
    reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=FRAME_BYTES_MAX)
    return StreamChannel(reader, writer, side="application")


def nats_parts(url: str) -> tuple[str, str, str]:
    """The NATS server, the cluster and the node of a URL."""
    server, _, path = url.removeprefix("nats://").partition("/")
    cluster, _, node = path.rstrip("/").rpartition("/")
    if not url.startswith("nats://") or not server or not cluster or not node:
        raise UsageError(
            f"{url!r} is no address of a bus", hint="write nats://host:port/CLUSTER/NODE"
        )
    return f"nats://{server}", cluster, node


def trusting(authority: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=authority)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"it cannot be used: {error}", place=authority) from None
