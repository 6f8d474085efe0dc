"""Transactions at a node: its broker, its own client, and the applications that take part.

The brokers of all nodes are a star around one, the hub, which is also the root of isolated
transactions. An application takes part at the node that its name belongs to; its client talks to
the broker there through its session. Each node has a resident (`transact.resident`); what that of
the hub delivers is committed, and enters the node's feeds under one source, each event once: its
number is its place in the resident's log, and the feeds pass over what they have.

The module knows places, addresses and numbers. Frames are the door's matter, and what brokers and
clients say to each other their own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from concordant.errors import ConcordantError, InvariantViolation, UsageError
from concordant.machine.effects import Delivery, Note
from concordant.machine.inputs import Message
from concordant.model.event import Event
from concordant.net.carrier import MemoryCarrier
from concordant.net.cluster import HUB, Cluster
from concordant.net.host import Place
from concordant.net.inlet import Inlet
from concordant.net.roles import part_of
from concordant.net.session import Given, Joined, Parcel
from concordant.net.transactions import LINKS, host_broker
from concordant.net.tunnel import CODEC
from concordant.route.link import Reliable
from concordant.transact.messages import WIRE
from concordant.transact.options import TransactOptions
from concordant.transact.resident import Resident, is_everywhere

SOURCE = "$transactions"
"""Whose events they are in the feeds; each keeps the id that it was published under."""
JOIN_S = 10.0
"""So long an application waits until the brokers know each other."""
ENTERING_COUNT_MAX = 10_000
"""Committed events that wait for the feeds. Not more than a resident's log keeps
(`LinkOptions.log_count_max`): with more the node ends, and goes on from its log when it is back."""


class Overlay:
    """The part of a node in the transactions of its cluster."""

    def __init__(
        self,
        cluster: Cluster,
        node: str,
        carrier: MemoryCarrier,
        inlet: Inlet,
        *,
        folder: Callable[[str], Path | None],
        hear: Callable[[str, Note], None],
    ) -> None:
        """`folder` says where a machine of an address has its log."""
        self.kinds = cluster.transaction_kinds
        self.topics = _topics(cluster)
        self.members: dict[str, Member] = {}
        """The applications that are here, by the names of their clients."""
        hub = cluster.hub
        self._entering = _Entering(inlet, cluster.limits.batch_count_max)
        self._resident = _address(hub, "resident")
        broker = _address(node, "broker")
        others = [_address(one, "broker") for one in cluster.names if one != node]
        self._broker = host_broker(
            broker,
            _Switch(carrier, self.members),
            neighbours=others if node == hub else [_address(hub, "broker")],
            isolated=cluster.cluster.transactions == "isolated",
            parent="" if node == hub else _address(hub, "broker"),
            folder=folder(broker),
            options=cluster.setting(node).options(TransactOptions),
        )
        own = _address(node, "resident")
        topics = None if self.topics is None else frozenset(self.topics)
        core = Resident(own, broker=broker, enters=node == hub, topics=topics)
        durable = folder(own) is not None
        resident = Place(
            own,
            Reliable(core, wire=WIRE, durable=durable, client=True, options=LINKS),
            carrier,
            take=self._entering.take,
            hear=lambda note: hear(own, note),
            taken_count=self._entering.entered_count,
            folder=folder(own),
            records=Reliable.records,
        )
        carrier.add(resident)
        self.places = [self._broker, resident]

    @property
    def failure(self) -> ConcordantError | None:
        return self._entering.failure

    async def stop(self) -> None:
        """Let nothing more enter; the places are the caller's to stop."""
        await self._entering.stop()

    # --- applications ---------------------------------------------------------------------------

    async def join(self, name: str, member: Member, *, resumes: bool) -> None:
        """Let an application take part; another one that did under the name is told to leave."""
        if not name or "/" in name or "#" in name:
            raise UsageError(
                f"{name!r} is no name to take part in transactions",
                hint="give the bus a name without / and #",
            )
        await self._ready()
        before = self.members.get(name)
        if before is not None and before.token != member.token:
            said = f"another application takes part as {name!r} now"
            if resumes:
                raise UsageError(said, hint="give each application a name of its own")
            before.leave(said)
        self.members[name] = member

    async def _ready(self) -> None:
        """Until then, what is published here might miss the resident that lets events enter."""
        router: Any = self._broker.machine.inner.router  # type: ignore[attr-defined]
        try:
            async with asyncio.timeout(JOIN_S):
                while not is_everywhere(router.tables.subscriptions, self._resident):
                    await self._broker.stepped()
        except TimeoutError:
            raise UsageError(
                f"transactions could not begin within {JOIN_S:g} s: a node does not answer",
                hint="see whether all nodes of the cluster run",
            ) from None

    def leave(self, name: str, token: str) -> None:
        """The session of an application is over; what its client has stays at the broker."""
        if name in self.members and self.members[name].token == token:
            del self.members[name]

    def received(self, parcel: Parcel, token: str) -> None:
        """Messages of a client, if it is still the one that takes part under its name."""
        if parcel.name in self.members and self.members[parcel.name].token == token:
            self._broker.received(parcel.name, CODEC.decode(parcel.body))

    def joined(self, request: int) -> Joined:
        return Joined(request, self.kinds, self.topics)


@dataclass(frozen=True)
class Member:
    """An application that takes part."""

    token: str
    send: Callable[[bytes], None]
    leave: Callable[[str], None]
    """Tells it why it takes part no longer."""


class _Switch(MemoryCarrier):
    """Carries for a broker: to applications through their sessions, else as the node does."""

    def __init__(self, carrier: MemoryCarrier, members: dict[str, Member]) -> None:
        super().__init__()
        self._carrier = carrier
        self._members = members

    def add(self, place: Place) -> None:
        self._carrier.add(place)

    def send(self, source: str, to: str, messages: tuple[Message, ...]) -> None:
        if "/" in to:
            self._carrier.send(source, to, messages)
        elif to in self._members:  # else it is away, and the link repeats
            self._members[to].send(CODEC.encode(messages))


class _Entering:
    """Committed events on their way into the feeds, in their order."""

    def __init__(self, inlet: Inlet, batch_count_max: int) -> None:
        self.failure: ConcordantError | None = None
        self.entered_count = inlet.last(SOURCE)
        self._inlet = inlet
        self._batch_count_max = batch_count_max
        self._waiting: deque[Event] = deque()
        self._more = asyncio.Event()
        self._task = asyncio.create_task(self._run())

    def take(self, deliveries: Sequence[Delivery]) -> None:
        self._waiting.extend(one.events[0] for one in deliveries)
        if len(self._waiting) > ENTERING_COUNT_MAX:
            self.failure = InvariantViolation(
                f"more than {ENTERING_COUNT_MAX:,} committed events wait for their feeds"
            )
            self._task.cancel()
        self._more.set()

    async def _run(self) -> None:
        try:
            while True:
                await self._more.wait()
                self._more.clear()
                while self._waiting:
                    await self._enter(list(islice(self._waiting, self._batch_count_max)))
        except ConcordantError as error:
            self.failure = error

    async def _enter(self, events: list[Event]) -> None:
        given = [Given(one.topic, dict(one.attributes), None, one.id) for one in events]
        self.entered_count = await self._inlet.publish(SOURCE, self.entered_count + 1, given)
        for _ in events:
            self._waiting.popleft()

    async def stop(self) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task


def _address(node: str, part: str) -> str:
    return part_of(node, HUB.partition("/")[0], part)


def _topics(cluster: Cluster) -> tuple[str, ...] | None:
    """The topics that all feeds take; None: any."""
    limited = any(one.declared for one in cluster.strategies)
    return tuple(cluster.topics) if limited else None
