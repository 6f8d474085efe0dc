"""A gateway at a node: it comes in by the node's own door, as any application does.

The node gives its door and says which names are at home here; the role connects to NATS, starts the
gateway as soon as the cluster lets it subscribe, and ends it with the node. The only module of the
node beside `nodes_over_nats` that needs nats-py; it is imported when a cluster file asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count

import msgspec

from concordant.errors import ConcordantError, UsageError
from concordant.net.caller import Caller
from concordant.net.cluster import Cluster
from concordant.net.gateway import Gateway, GatewayOptions
from concordant.net.nats import NatsOptions, NatsServer
from concordant.net.nodes_over_nats import options_of
from concordant.net.session import Channel, MemoryChannel
from concordant.net.status import Metric, label
from concordant.net.tasks import ended

RETRY_S = 0.5
"""So long after the cluster did not let it subscribe, the gateway asks again."""

Serve = Callable[[Channel], Awaitable[None]]
"""A node's door."""


class GatewayRole:
    """One gateway, from its node's start to its end."""

    def __init__(
        self,
        options: GatewayOptions,
        nats: NatsOptions,
        *,
        serve: Serve,
        is_home: Callable[[str], bool] = lambda name: True,
        token: str = "",
    ) -> None:
        """`token` is what the node wants to see of applications."""
        self.begun = asyncio.Event()
        """Set when plain subjects are heard and ordered ones are given."""
        self._options = msgspec.structs.replace(options, name=at_home(options.name, is_home))
        self._server = NatsServer(nats, name=self._options.name)
        self._gateway = Gateway(self._server, self._options)
        self._caller = Caller(self._connect, where="its own node", token=token)
        self._serve = serve
        self._sessions: set[asyncio.Future[None]] = set()
        self._beginning: asyncio.Task[None] | None = None
        self._failure: ConcordantError | None = None

    @property
    def gateway(self) -> Gateway:
        return self._gateway

    @property
    def failure(self) -> ConcordantError | None:
        """Why the gateway ended by itself, if it did."""
        return self._failure or self._gateway.failure

    async def start(self) -> None:
        """Connect to NATS, and begin as soon as the other nodes are there."""
        await self._server.start()
        await self._caller.start()
        self._beginning = asyncio.create_task(self._begin())

    async def _begin(self) -> None:
        try:
            pen = await self._caller.pen(self._options.name)
            while True:
                try:
                    reading = await self._caller.read(self._options.asked())
                    break
                except UsageError as error:
                    if "could not begin" not in error.message:
                        raise
                    await asyncio.sleep(RETRY_S)
            await self._gateway.start(pen, reading)
            self.begun.set()
        except ConcordantError as error:
            self._failure = error

    async def _connect(self) -> Channel:
        mine, its = MemoryChannel.pair()
        session = asyncio.ensure_future(self._serve(its))
        self._sessions.add(session)
        session.add_done_callback(self._sessions.discard)
        return mine

    def metrics(self) -> list[Metric]:
        """What the gateway counts."""
        gateway = self._gateway
        refused = {**gateway.refused, "unread": self._server.errors["SlowConsumerError"]}
        return [
            Metric(
                "gateway_taken_total",
                "Events that came by plain subjects and are stored.",
                {"": gateway.taken_count},
                counted=True,
            ),
            Metric(
                "gateway_given_total",
                "Events that were given to ordered subjects.",
                {"": gateway.given_count},
                counted=True,
            ),
            Metric(
                "gateway_refused_total",
                "Plain messages that were refused, by reason.",
                {label("reason", reason): n for reason, n in refused.items()},
                counted=True,
            ),
        ]

    async def stop(self) -> None:
        """End; the node keeps the subscription, and the next life goes on there."""
        if self._beginning is not None:
            await ended(self._beginning)
        await self._gateway.stop()
        await self._caller.stop()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        await self._server.stop()


def gateway_of(cluster: Cluster, node: str, *, serve: Serve, token: str, place: str) -> GatewayRole:
    """The gateway that the table [gateway] of a cluster file describes."""
    table = {key: value for key, value in cluster.gateway.items() if key != "node"}
    try:
        options = msgspec.convert(table, GatewayOptions)
    except msgspec.ValidationError as error:
        raise UsageError(str(error), place=f"{place}: [gateway]") from None
    nats = options_of(cluster, place=place)
    try:
        return GatewayRole(
            options, nats, serve=serve, is_home=lambda name: cluster.home(name) == node, token=token
        )
    except UsageError as error:
        raise UsageError(
            error.message, hint=error.hint, place=f"{place}: [gateway] {error.place}"
        ) from None


def at_home(name: str, is_home: Callable[[str], bool]) -> str:
    """The name, or the first of `name-1`, `name-2` … that belongs to this node.

    >>> at_home("gateway", lambda name: name.endswith("2"))
    'gateway-2'
    """
    if is_home(name):
        return name
    return next(found for found in (f"{name}-{n}" for n in count(1)) if is_home(found))
