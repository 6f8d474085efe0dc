"""Messages between nodes over NATS: to one place by a link, to a topic by the server.

What is sent to a place goes over a link and is neither lost, doubled nor overtaken while both nodes
live. What is disseminated is published once, and the server copies it; each node numbers what it
publishes per topic, so that whoever misses something knows it (`hole_count`), and the protocols on
top ask for it. With `NatsOptions.durable` the topics lie in a stream of JetStream instead.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import msgspec

from concordant.errors import PeerError, UsageError
from concordant.machine.inputs import Message
from concordant.net.carrier import WAITING_COUNT_MAX, MemoryCarrier, MeshCarrier
from concordant.net.nats_links import NatsMesh
from concordant.net.nats_topics import CoreTopics, DurableTopics, Topics
from concordant.net.tasks import ended
from concordant.wire.messages import Codec

GATHERED_BYTES_MAX = 1 << 18
"""What waits for one topic is gathered into messages of about so many bytes."""
_HEAD_BYTES = 4_096


class Parcel(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Messages of one place to a topic."""

    source: str
    body: bytes


class Parcels(msgspec.Struct, frozen=True, array_like=True):
    """Parcels of one node on one topic, with consecutive numbers."""

    node: str
    life: str
    first: int
    parcels: list[Parcel]


_decoder = msgspec.msgpack.Decoder(Parcels)
_encoder = msgspec.msgpack.Encoder()


class NatsCarrier(MeshCarrier):
    """Carries messages between the nodes of a cluster over NATS."""

    def __init__(self, mesh: NatsMesh, codec: Codec) -> None:
        super().__init__(mesh, codec)
        self.hole_count = 0
        """Parcels that were published and never came here."""
        self.failure: UsageError | None = None
        """Why topics do not come here that somebody listens to."""
        me, server = mesh.me, mesh.server
        self._me = me
        self._topics: Topics
        durable = server.options.durable
        if durable is None:
            self._topics = CoreTopics(server, me.cluster, self._take_parcels)
        else:
            self._topics = DurableTopics(
                server, me.cluster, me.node, self._take_parcels, options=durable
            )
        self._single_bytes_max = server.payload_bytes_max - _HEAD_BYTES
        self._bytes_max = min(GATHERED_BYTES_MAX, self._single_bytes_max)
        self._members = {me.node, *mesh.peers}
        self._sent: dict[str, int] = {}
        """The number of the last parcel by topic."""
        self._next: dict[tuple[str, str], tuple[str, int]] = {}
        """By node and topic: its life, and the number that is due."""
        self._unsent: deque[tuple[str, Parcel]] = deque()
        self._spreading: asyncio.Task[None] | None = None
        self._changes: deque[Callable[[], Awaitable[None]]] = deque()
        self._changing: asyncio.Task[None] | None = None
        self._brought: set[str] = set()
        """Topics that come here."""

    async def start(self) -> None:
        """Prepare the topics."""
        await self._topics.start()

    async def stop(self) -> None:
        """Carry nothing more; mesh and server are the caller's to stop."""
        for task in (self._spreading, self._changing):
            if task is not None:
                await ended(task)
        await self._topics.stop()
        await super().stop()

    # --- out ------------------------------------------------------------------------------------

    def disseminate(self, source: str, topic: str, messages: tuple[Message, ...]) -> None:
        if self._topics.local:
            MemoryCarrier.disseminate(self, source, topic, messages)
        self._spread(source, topic, messages)

    def _spread(self, source: str, topic: str, messages: tuple[Message, ...]) -> None:
        body = self._codec.encode(messages)
        if len(body) > self._bytes_max:
            middle = len(messages) // 2
            if middle:
                self._spread(source, topic, messages[:middle])
                self._spread(source, topic, messages[middle:])
                return
            if len(body) > self._single_bytes_max:  # whoever asks for it gets it by a link
                self.dropped_count += 1
                return
        self._unsent.append((topic, Parcel(source, body)))
        if len(self._unsent) > WAITING_COUNT_MAX:
            self._unsent.popleft()
            self.dropped_count += 1
        if self._spreading is None or self._spreading.done():
            self._spreading = asyncio.create_task(self._send_unsent())

    async def _send_unsent(self) -> None:
        while self._unsent:
            topic, parcel = self._unsent.popleft()
            parcels = [parcel]
            size = len(parcel.body)
            while self._unsent and self._unsent[0][0] == topic:
                size += len(self._unsent[0][1].body)
                if size > self._bytes_max:
                    break
                parcels.append(self._unsent.popleft()[1])
            first = self._sent.get(topic, 0) + 1
            self._sent[topic] = first + len(parcels) - 1
            data = _encoder.encode(Parcels(self._me.node, self._me.life, first, parcels))
            await self._topics.publish(topic, data, f"{self._me.life}:{topic}:{first}")

    # --- in -------------------------------------------------------------------------------------

    async def _take_parcels(self, topic: str, data: bytes) -> None:
        try:
            found: Parcels = _decoder.decode(data)
        except (msgspec.DecodeError, ValueError, RecursionError):
            self.refused_count += 1
            return
        if found.node not in self._members or found.first < 1:
            self.refused_count += 1
            return
        for parcel in self._new(topic, found):
            try:
                messages = self._codec.decode(parcel.body)
            except PeerError:
                self.refused_count += 1
            else:
                MemoryCarrier.disseminate(self, parcel.source, topic, messages)
        if not self._topics.local:
            await self._settled(topic)

    def _new(self, topic: str, found: Parcels) -> list[Parcel]:
        """The parcels that did not come before; what is missing is counted."""
        life, due = self._next.get((found.node, topic), ("", 0))
        if life != found.life:
            due = found.first  # where this life begins to be heard
        if found.first > due:
            self.hole_count += found.first - due
        end = found.first + len(found.parcels)
        self._next[found.node, topic] = (found.life, max(end, due))
        return found.parcels[max(0, due - found.first) :]

    async def _settled(self, topic: str) -> None:
        """Until the places have made durable what they were given."""
        await asyncio.sleep(0)  # an arrival is a step of its own
        for address in list(self._listeners.get(topic, {})):
            place = self._places.get(address)
            if place is not None:
                await place.settled()

    # --- who listens ----------------------------------------------------------------------------

    def listen(self, place: str, topics: tuple[str, ...]) -> None:
        self._listen_here(place, topics)

        async def change() -> None:
            for topic in topics:
                if topic not in self._brought and self._listeners.get(topic):
                    await self._topics.listen(topic)
                    self._brought.add(topic)
            self._confirm(place, topics)

        self._change(change)

    def ignore(self, place: str, topics: tuple[str, ...]) -> None:
        MemoryCarrier.ignore(self, place, topics)

        async def change() -> None:
            for topic in topics:
                if topic in self._brought and not self._listeners.get(topic):
                    self._brought.discard(topic)
                    await self._topics.ignore(topic)

        self._change(change)

    def _change(self, change: Callable[[], Awaitable[None]]) -> None:
        """One after the other, in the order in which they were asked for."""
        self._changes.append(change)
        if self._changing is None or self._changing.done():
            self._changing = asyncio.create_task(self._make_changes())

    async def _make_changes(self) -> None:
        while self._changes:
            try:
                await self._changes.popleft()()
            except UsageError as error:  # a subject that the server forbids
                self.failure = self.failure or error

    def _tell(self, nodes: list[str]) -> None:
        """The server knows who listens; nodes need not."""
