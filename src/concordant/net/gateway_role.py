"""A gateway at a node: it comes in by the node's own door, as any application does.

The node gives its door and says which names are at home here; the role connects to NATS, starts the
gateway and ends it with the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import msgspec

from concordant.errors import ConcordantError
from concordant.net.caller import Caller
from concordant.net.gateway import Gateway, GatewayOptions
from concordant.net.nats import NatsOptions, NatsServer, connect
from concordant.net.session import Channel, MemoryChannel


class GatewayRole:
    """One gateway, from its node's start to its end."""

    def __init__(
        self,
        options: GatewayOptions,
        nats: NatsOptions,
        *,
        serve: Callable[[Channel], Awaitable[None]],
        is_home: Callable[[str], bool] = lambda name: True,
        token: str = "",
    ) -> None:
        """`serve` is the node's door, `token` what it wants to see of applications."""
        self._options = msgspec.structs.replace(options, name=at_home(options.name, is_home))
        self._nats = nats
        self._serve = serve
        self._token = token
        self._sessions: set[asyncio.Future[None]] = set()
        self._server: NatsServer | None = None
        self._caller: Caller | None = None
        self.gateway: Gateway | None = None

    async def start(self) -> None:
        """On return, plain subjects are heard and ordered ones are given."""
        name = self._options.name
        self._server = await connect(self._nats, name=name)
        gateway = Gateway(self._server, self._options)
        self._caller = Caller(self._connect, where=f"the node of {name}", token=self._token)
        await self._caller.start()
        pen = await self._caller.pen(name)
        reading = await self._caller.read(self._options.asked())
        await gateway.start(pen, reading)
        self.gateway = gateway

    async def _connect(self) -> Channel:
        mine, its = MemoryChannel.pair()
        session = asyncio.ensure_future(self._serve(its))
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)
        return mine

    @property
    def failure(self) -> ConcordantError | None:
        """Why the gateway ended by itself, if it did."""
        return self.gateway.failure if self.gateway is not None else None

    async def stop(self) -> None:
        """End; the node keeps the subscription, and the next life goes on there."""
        if self.gateway is not None:
            await self.gateway.stop()
        if self._caller is not None:
            await self._caller.stop()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        if self._server is not None:
            await self._server.stop()


def at_home(name: str, is_home: Callable[[str], bool]) -> str:
    """The name, or the first of `name-1`, `name-2` … that belongs to this node.

    >>> at_home("gateway", lambda name: name.endswith("2"))
    'gateway-2'
    """
    if is_home(name):
        return name
    return next(found for found in (f"{name}-{n}" for n in count(1)) if is_home(found))
