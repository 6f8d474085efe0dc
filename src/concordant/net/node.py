"""A node: the machines that a cluster file gives it, running, with a door for applications.

It joins the parts: carrier and links to the other nodes, the publishers of every feed, the parts
that the placement policy puts here, the subscriptions of its applications, health and metrics. It
starts them in an order in which nothing is lost, and stops them so that what was told is on the
disk. The same node runs inside an application, in memory, without sockets and disk.
"""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from concordant.errors import ConcordantError, InvariantViolation, UsageError
from concordant.machine.effects import Note
from concordant.machine.saved import Compact
from concordant.net.carrier import MemoryCarrier, MeshCarrier
from concordant.net.cluster import (
    Cluster,
    Head,
    NodeSpec,
    address_of,
    check_cluster,
    secret,
    tls_contexts,
)
from concordant.net.door import Door
from concordant.net.flow import Flow, Held, Hold
from concordant.net.folder import claim
from concordant.net.host import Place, microseconds
from concordant.net.hosting import Hosting
from concordant.net.inlet import Feed, Inlet
from concordant.net.known import Seal
from concordant.net.link import Identity
from concordant.net.mesh import Links
from concordant.net.overlay import Overlay
from concordant.net.roles import Make, Strategy, message_kinds, part_of, publisher_of
from concordant.net.session import FRAME_BYTES_MAX, Channel, StreamChannel
from concordant.net.status import Metric, Status, label
from concordant.net.tasks import ended
from concordant.net.tcp import Mesh
from concordant.net.transactions import MESSAGES
from concordant.order.client import Retired
from concordant.wire.messages import Codec

WATCH_S = 0.05
"""So often the node looks for slow applications and for machines that died."""


def memory_cluster(
    strategies: tuple[str, ...] | None = None,
    topics: Mapping[str, Mapping[str, str]] | None = None,
    transactions: str = "",
) -> Cluster:
    """A cluster of one node that lives in one process."""
    head: dict[str, Any] = {"name": "memory", "transactions": transactions}
    if strategies is not None:
        head["strategies"] = strategies
    declared = {name: dict(kinds) for name, kinds in (topics or {}).items()}
    nodes = {"memory": NodeSpec("memory:0")}
    found = Cluster(Head(**head), nodes, topics=declared)
    check_cluster(found, place="memory:")
    return found


class Node:
    """One node of a cluster."""

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        *,
        beside: Path | None = None,
        place: str = "",
        say: Callable[..., None] | None = None,
    ) -> None:
        """`beside` is the folder of the cluster file, `place` its name in errors."""
        if name not in cluster.nodes:
            raise UsageError(
                f"no node is called {name!r}",
                hint=f"the nodes are {', '.join(cluster.names)}",
                place=f"{place}: [nodes]" if place else "",
            )
        self.cluster = cluster
        self.name = name
        self.failed: asyncio.Event = asyncio.Event()
        """Set when a machine died, which ends the node."""
        self.failure: ConcordantError | None = None
        self._spec = cluster.nodes[name]
        self._beside = beside or Path()
        self._place = place
        self._say = say or (lambda what, **fields: None)
        self._folder: Path | None = None
        if cluster.cluster.data:
            self._folder = self._beside / cluster.cluster.data / quote(name, safe="")
        self._setting = cluster.setting(name)
        self._places: list[Place] = []
        self._compacted: list[Place] = []
        """Those whose machines replace their logs when they are asked to."""
        self._noted_count = 0
        self._servers: list[asyncio.Server] = []
        self._serving: set[asyncio.Task[None]] = set()
        self._status: Status | None = None
        self._links: Links | None = None
        self._nats: Any = None
        self._carrier: MemoryCarrier = MemoryCarrier()
        self._gateway: Any = None
        self._watching: asyncio.Task[None] | None = None
        self._door: Door | None = None
        self._overlay: Overlay | None = None
        self._hosting: Hosting | None = None
        self._stopped = False

    # --- start ----------------------------------------------------------------------------------

    async def start(self, *, door: bool = True) -> None:
        """Come to life; without a door, only `serve` lets applications in."""
        try:
            await self._start(door)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, door: bool) -> None:
        cluster = self.cluster
        tls = self._tls()
        if self._folder is not None:
            claim(self._folder)
        if len(cluster.nodes) > 1 or cluster.cluster.transport == "nats":
            await self._connect(tls)
        flow = self._host(f"{self.name}/flow", Flow(), folder=None)
        hosting = Hosting(
            self._setting,
            self._carrier,
            cluster.strategies,
            schemas=cluster.schemas,
            limits=cluster.limits,
            transport=cluster.cluster.transport if self._links is not None else "",
            folder=self._folder,
            hear=self._note,
        )
        self._hosting = hosting
        hosting.pressed = lambda: self._hold(flow, hosting)
        feeds = {one.feed: one for one in cluster.strategies}
        inlet = Inlet(
            {feed: self._feed(one) for feed, one in feeds.items()},
            flow,
            seal=Seal(self._secret(cluster.credentials.nodes, "nodes")),
            publishers_max=cluster.limits.publishers_max,
            batch_count_max=cluster.limits.batch_count_max,
            forgot=self._forgot(),
        )
        for strategy in cluster.strategies:
            self._host_parts(strategy)
        hosting.start()
        if cluster.cluster.transactions:
            self._overlay = Overlay(
                cluster,
                self.name,
                self._carrier,
                inlet,
                folder=self._folder_of,
                hear=self._note,
            )
            self._places += self._overlay.places
        token = self._secret(cluster.credentials.applications, "applications")
        self._door = Door(
            cluster, self.name, inlet, hosting, self._overlay, token=token, say=self._say
        )
        if self._spec.http and door:
            self._status = Status(self.health, self.metrics)
            await self._status.start(*self._address("http"))
        self._watching = asyncio.create_task(self._watch(flow, hosting))
        self._watching.add_done_callback(self._watched)
        if self._nats is not None:
            await self._nats.doors.answer(self.name, self.serve)
        if door:
            await self._open_door(tls[2] if tls else None)
        if cluster.gateway and cluster.gateway.get("node", cluster.names[0]) == self.name:
            from concordant.net.gateway_role import gateway_of

            self._gateway = gateway_of(
                cluster, self.name, serve=self.serve, token=token, place=self._place
            )
            await self._gateway.start()
        self._say("started", door=self._spec.door, strategies=list(cluster.cluster.strategies))

    def _secret(self, text: str, key: str) -> str:
        where = f"{self._place}: [credentials] {key}"
        return secret(text, folder=self._beside, place=where)

    def _tls(self) -> tuple[ssl.SSLContext, ssl.SSLContext, ssl.SSLContext] | None:
        if self.cluster.tls is None:
            return None
        return tls_contexts(
            self.cluster.tls, self.name, folder=self._beside, place=self._place or "cluster"
        )

    def _address(self, key: str) -> tuple[str, int]:
        where = f"{self._place}: [nodes.{self.name}] {key}"
        return address_of(getattr(self._spec, key), place=where)

    async def _connect(
        self, tls: tuple[ssl.SSLContext, ssl.SSLContext, ssl.SSLContext] | None
    ) -> None:
        """Links to the other nodes, and a carrier over them."""
        cluster = self.cluster
        token = self._secret(cluster.credentials.nodes, "nodes")
        me = Identity(cluster.cluster.name, self.name, secrets.token_hex(8), token)
        codec = Codec((*message_kinds(cluster.strategies), *MESSAGES, Held))
        if cluster.cluster.transport == "nats":
            from concordant.net.nodes_over_nats import connect

            self._nats = await connect(me, cluster, codec, place=self._place)
            self._links, self._carrier = self._nats.links, self._nats.carrier
            return
        peers = {name: address_of(node.address, place=name) for name, node in cluster.nodes.items()}
        server_tls, client_tls = (tls[0], tls[1]) if tls else (None, None)
        mesh = Mesh(me, peers, server_tls=server_tls, client_tls=client_tls)
        self._links = mesh
        self._carrier = MeshCarrier(mesh, codec)
        await mesh.start(*self._address("address"))

    def _host(
        self, address: str, machine: Any, *, folder: Path | None, strategy: Strategy | None = None
    ) -> Place:
        place = Place(
            address,
            machine,
            self._carrier,
            hear=lambda note: self._note(address, note),
            folder=folder,
            records=strategy.records if strategy else (),
            scope=f"{strategy.feed}:" if strategy else "",
        )
        self._places.append(place)
        if strategy is not None and strategy.compacts:
            self._compacted.append(place)
        self._carrier.add(place)
        return place

    def _forgot(self) -> bool:
        """Was a disk of this node lost, now or earlier? The file keeps it in mind."""
        if self._folder is None:
            return False
        told = self._folder / "replaced"
        if self.cluster.cluster.replaced == self.name:
            told.touch()
        return told.exists()

    def _folder_of(self, address: str) -> Path | None:
        if self._folder is None:
            return None
        return self._folder / "machines" / quote(address.partition("/")[2], safe="")

    def _feed(self, strategy: Strategy) -> Feed:
        address = publisher_of(self.name, strategy.feed)
        publisher = strategy.publisher(self._setting, address)
        place = self._host(address, publisher, folder=self._folder_of(address), strategy=strategy)
        retires = strategy.compacts or Retired in strategy.records
        return Feed(
            place,
            publisher,
            retires=retires,
            learns=strategy.learns,
            addresses=strategy.addresses,
        )

    def _host_parts(self, strategy: Strategy) -> None:
        for part in strategy.parts(self._setting):
            if part.everywhere:
                address = part_of(self.name, strategy.name, part.name)
            else:
                address = self._setting.placed[f"{strategy.name}/{part.name}"]
            if address.partition("/")[0] == self.name:
                make: Make = part.make
                machine = make(self._setting, address)
                self._host(address, machine, folder=self._folder_of(address), strategy=strategy)
                self._say("hosts", part=address)

    async def _open_door(self, tls: ssl.SSLContext | None) -> None:
        host, port = self._address("door")
        try:
            server = await asyncio.start_server(
                self._accept, host, port, ssl=tls, limit=FRAME_BYTES_MAX
            )
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror or error}",
                hint="stop what uses the port, or choose another one",
                place=f"{self._place}: [nodes.{self.name}] door",
            ) from None
        self._servers.append(server)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        await self.serve(StreamChannel(reader, writer, side="node"))

    async def serve(self, channel: Channel) -> None:
        """Let an application in, over any channel, until it goes."""
        assert self._door is not None, "the node was not started"
        await self._door.serve(channel)

    # --- while it runs --------------------------------------------------------------------------

    async def _watch(self, flow: Place, hosting: Hosting) -> None:
        """Look after slow applications and dead machines; this has no event to wait for."""
        while True:
            await asyncio.sleep(WATCH_S)
            self._hold(flow, hosting)
            self._compact(hosting)
            if self._door is not None:
                self._door.retire(microseconds())
            for one, reason in hosting.slow(microseconds()):
                one.release(reason)
                await hosting.cut(one)
                self._say("cut off", id=one.id, reason=reason)
            for place in [*self._places, *(one.place for one in hosting.all())]:
                if place is not None and place.failure is not None and not self._stopped:
                    self.failure = place.failure
                    self._say("failed", machine=place.address, error=str(place.failure))
                    self.failed.set()
                    return
            beside = {
                "gateway": self._gateway,
                "nats": self._nats and self._nats.carrier,
                "transactions": self._overlay,
            }
            for name, one in beside.items():
                if one is not None and one.failure is not None:
                    self.failure = one.failure
                    self._say("failed", machine=name, error=str(one.failure))
                    self.failed.set()
                    return

    def _watched(self, watching: asyncio.Task[None]) -> None:
        """Nobody looks after the node any longer, by a bug of ours: it must not go on."""
        error = None if watching.cancelled() else watching.exception()
        if error is not None:
            self.failure = InvariantViolation(f"{type(error).__name__}: {error}")
            self.failed.set()

    def _hold(self, flow: Place, hosting: Hosting) -> None:
        """Let the publishers of all nodes wait for subscribers that want it so."""
        flow.command(Hold(tuple(hosting.held_topics(microseconds()))))

    def _compact(self, hosting: Hosting) -> None:
        """Keep the logs short."""
        for place in self._compacted:
            if place.grown:
                place.command(Compact())
        hosting.compact()

    def _note(self, address: str, note: Note) -> None:
        if note.step is None and note.text:
            self._noted_count += 1
            self._say("note", machine=address, text=note.text)

    def health(self) -> dict[str, Any]:
        """For a probe: alive, and what it has."""
        found = {"ok": self.failure is None and not self._stopped, "node": self.name}
        if self._links is not None:
            found["connected"] = sorted(self._links.connected)
            found["peers"] = sorted(self._links.peers)
        return found

    def metrics(self) -> list[Metric]:
        """What is counted and measured."""
        door, hosting = self._door, self._hosting
        if door is None or hosting is None:
            return []
        now = microseconds()
        outlets = [one.outlet for one in hosting.all()]
        found = [
            Metric("sessions", "Applications that are here.", {"": len(door.sessions)}),
            Metric("subscriptions", "Subscriptions that live here.", {"": len(hosting)}),
            Metric(
                "published_total",
                "Events that applications published here.",
                {"": door.inlet.published_count},
                counted=True,
            ),
            Metric(
                "delivered_total",
                "Deliveries for applications here.",
                {"": hosting.delivered_count},
                counted=True,
            ),
            Metric(
                "cut_off_total",
                "Subscriptions that were cut off because they were too slow.",
                {"": hosting.cut_count},
                counted=True,
            ),
            Metric(
                "notes_total",
                "Notes of machines, as of events that are no longer kept.",
                {"": self._noted_count},
                counted=True,
            ),
            Metric(
                "waiting", "Deliveries that wait for applications.", {"": sum(map(len, outlets))}
            ),
            Metric(
                "lag_seconds",
                "How long the oldest of them waits.",
                {"": max((one.lag_us(now) for one in outlets), default=0) / 1e6},
            ),
            Metric(
                "held_items",
                "What waits in machines.",
                {label("machine", one.address): one.machine.held_count for one in self._places},
            ),
            Metric(
                "refused_messages_total",
                "Messages that broke a protocol, by machine.",
                {label("machine", one.address): one.refused_count for one in self._places},
                counted=True,
            ),
            Metric(
                "refused_sessions_total",
                "Sessions that were ended, by reason.",
                {label("reason", reason): count for reason, count in door.refused.items()},
                counted=True,
            ),
        ]
        if self._gateway is not None:
            found += self._gateway.metrics()
        if self._links is not None:
            connected = set(self._links.connected)
            found.append(
                Metric(
                    "connected",
                    "1 for every other node that is there.",
                    {label("node", one): float(one in connected) for one in self._links.peers},
                )
            )
            found.append(
                Metric(
                    "refused_connections_total",
                    "Connections to other nodes that were closed, by reason.",
                    {label("reason", r): n for r, n in self._links.refused.items()},
                    counted=True,
                )
            )
        return found

    # --- stop -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """End the sessions, let what was told become durable, and go."""
        if self._stopped:
            return
        self._stopped = True
        if self._watching is not None:
            await ended(self._watching)
        if self._gateway is not None:
            await self._gateway.stop()
        for server in self._servers:
            server.close()
        if self._door is not None:
            self._door.close()
            await self._door.empty()
        await asyncio.gather(*self._serving, return_exceptions=True)
        for server in self._servers:
            await server.wait_closed()
        if self._overlay is not None:
            await self._overlay.stop()
        errors: list[ConcordantError] = []
        if self._hosting is not None:
            await self._quietly(self._hosting.stop(), errors)
        for place in self._places:
            await self._quietly(place.stop(), errors)
        if isinstance(self._carrier, MeshCarrier):
            await self._carrier.stop()
        if self._links is not None:
            await self._links.stop()
        if self._nats is not None:
            await self._nats.stop()
        if self._status is not None:
            await self._status.stop()
        self._say("stopped", errors=[str(error) for error in errors])

    async def _quietly(self, work: Any, errors: list[ConcordantError]) -> None:
        try:
            await work
        except ConcordantError as error:
            errors.append(error)
