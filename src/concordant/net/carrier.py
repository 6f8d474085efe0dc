"""What carries messages between places: within one event loop, and between nodes over a mesh.

A carrier knows who listens to which topic, and what is under way; it knows no protocol. Between
nodes nothing is lost, doubled or overtaken while both live; what a node had not taken when it died
reaches its next life, and what waits for a node that stays away is dropped beyond a bound, oldest
first, as is what is too large for a link: protocols on top ask again for what is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from concordant.errors import PeerError
from concordant.machine.inputs import Message
from concordant.net.host import Place
from concordant.net.mesh import PAYLOAD_BYTES_MAX, Links
from concordant.wire.messages import Codec


class MemoryCarrier:
    """Carries messages between places of one event loop: in order, and nothing is lost.

    An arrival is a step of its own, so that a machine never answers while another is at work.
    """

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._listeners: dict[str, dict[str, bool]] = {}

    def add(self, place: Place) -> None:
        """Let a place be found under its address."""
        self._places[place.address] = place

    def remove(self, address: str) -> None:
        """What is sent to it from now on is lost."""
        self._places.pop(address, None)
        for listeners in self._listeners.values():
            listeners.pop(address, None)

    def send(self, source: str, to: str, messages: tuple[Message, ...]) -> None:
        self._soon(to, lambda place: place.received(source, messages))

    def send_all(self, source: str, to: tuple[str, ...], messages: tuple[Message, ...]) -> None:
        for one in to:
            self.send(source, one, messages)

    def disseminate(self, source: str, topic: str, messages: tuple[Message, ...]) -> None:
        for to in self._listeners.get(topic, {}):
            self.send(source, to, messages)

    def listen(self, place: str, topics: tuple[str, ...]) -> None:
        self._listen_here(place, topics)
        self._confirm(place, topics)

    def _listen_here(self, place: str, topics: tuple[str, ...]) -> None:
        for topic in topics:
            self._listeners.setdefault(topic, {})[place] = True

    def _confirm(self, place: str, topics: tuple[str, ...]) -> None:
        self._soon(place, lambda found: found.listening(topics))

    def ignore(self, place: str, topics: tuple[str, ...]) -> None:
        for topic in topics:
            self._listeners.get(topic, {}).pop(place, None)

    def _soon(self, to: str, give: Callable[[Place], Any]) -> None:
        asyncio.get_running_loop().call_soon(self._arrive, to, give)

    def _arrive(self, to: str, give: Callable[[Place], Any]) -> None:
        place = self._places.get(to)
        if place is not None:
            give(place)


class Carried(msgspec.Struct, frozen=True, array_like=True, tag="carried"):
    """Messages to places of one node."""

    source: str
    to: tuple[str, ...]
    body: bytes


class Spread(msgspec.Struct, frozen=True, array_like=True, tag="spread"):
    """Messages to everybody here who listens to a topic."""

    source: str
    topic: str
    body: bytes


class Listens(msgspec.Struct, frozen=True, array_like=True, tag="listens"):
    """The topics that the sender's places listen to from now on, all of them."""

    number: int
    topics: list[str]


class Heard(msgspec.Struct, frozen=True, array_like=True, tag="heard"):
    """The `Listens` of this number is known."""

    number: int


_Parcel = Carried | Spread | Listens | Heard
_decoder = msgspec.msgpack.Decoder(_Parcel)
_encoder = msgspec.msgpack.Encoder()

WAITING_COUNT_MAX = 10_000
WAITING_BYTES_MAX = 1 << 26
"""Parcels that wait for one node, and their length; beyond that the oldest go, and are counted."""


class MeshCarrier(MemoryCarrier):
    """Carries messages between the nodes of a cluster. An address is `node` or `node/part`."""

    def __init__(self, mesh: Links, codec: Codec) -> None:
        super().__init__()
        self.dropped_count = 0
        self.refused_count = 0
        self._mesh = mesh
        self._codec = codec
        self._elsewhere: dict[str, set[str]] = {}
        """Topics that other nodes listen to, by node."""
        self._number = 0
        self._unheard: dict[int, tuple[str, tuple[str, ...], set[str]]] = {}
        """Listens that somebody has not heard: place, topics, nodes."""
        self._waiting: dict[str, deque[bytes]] = {}
        self._waiting_bytes: dict[str, int] = {}
        self._senders: dict[str, asyncio.Task[None]] = {}
        self._receiver = asyncio.create_task(self._receive())

    async def stop(self) -> None:
        """Carry nothing more; the mesh is the caller's to stop."""
        tasks = [self._receiver, *self._senders.values()]
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)

    # --- out ------------------------------------------------------------------------------------

    def send(self, source: str, to: str, messages: tuple[Message, ...]) -> None:
        node = to.partition("/")[0]
        if node == self._mesh.me.node:
            super().send(source, to, messages)
        else:
            self._post(node, Carried(source, (to,), self._codec.encode(messages)))

    def send_all(self, source: str, to: tuple[str, ...], messages: tuple[Message, ...]) -> None:
        nodes: dict[str, list[str]] = {}
        for one in to:
            nodes.setdefault(one.partition("/")[0], []).append(one)
        for one in nodes.pop(self._mesh.me.node, ()):
            super().send(source, one, messages)
        if nodes:
            body = self._codec.encode(messages)
            for node, places in nodes.items():
                self._post(node, Carried(source, tuple(places), body))

    def disseminate(self, source: str, topic: str, messages: tuple[Message, ...]) -> None:
        super().disseminate(source, topic, messages)
        nodes = [node for node, topics in self._elsewhere.items() if topic in topics]
        if nodes:
            parcel = Spread(source, topic, self._codec.encode(messages))
            for node in nodes:
                self._post(node, parcel)

    def listen(self, place: str, topics: tuple[str, ...]) -> None:
        self._listen_here(place, topics)
        self._number += 1
        nodes = set(self._mesh.connected)
        if nodes:
            self._unheard[self._number] = (place, topics, nodes)
        else:
            self._confirm(place, topics)
        self._tell(self._mesh.peers)

    def ignore(self, place: str, topics: tuple[str, ...]) -> None:
        super().ignore(place, topics)
        self._number += 1
        self._tell(self._mesh.peers)

    def _tell(self, nodes: list[str]) -> None:
        here = sorted(topic for topic, listeners in self._listeners.items() if listeners)
        for node in nodes:
            self._post(node, Listens(self._number, here))

    def _post(self, node: str, parcel: _Parcel) -> None:
        data = _encoder.encode(parcel)
        if len(data) > PAYLOAD_BYTES_MAX:  # no link takes it, now or later
            self.dropped_count += 1
            return
        sender = self._senders.get(node)
        idle = sender is None or sender.done()
        if idle and self._mesh.send_now(node, data):
            return
        waiting = self._waiting.setdefault(node, deque())
        waiting.append(data)
        size = self._waiting_bytes.get(node, 0) + len(data)
        while len(waiting) > WAITING_COUNT_MAX or size > WAITING_BYTES_MAX:
            size -= len(waiting.popleft())
            self.dropped_count += 1
        self._waiting_bytes[node] = size
        if idle:
            self._senders[node] = asyncio.create_task(self._send_waiting(node, waiting))

    async def _send_waiting(self, node: str, waiting: deque[bytes]) -> None:
        while waiting:
            data = waiting.popleft()
            self._waiting_bytes[node] -= len(data)
            await self._mesh.send(node, data)

    # --- in -------------------------------------------------------------------------------------

    async def _receive(self) -> None:
        while True:
            node, payload = await self._mesh.receive()
            try:
                self._take(node, payload)
            except PeerError:
                self.refused_count += 1

    def _take(self, node: str, payload: bytes) -> None:
        if not payload:  # the mesh says that the node is there, perhaps in a new life
            self._tell([node])
            return
        try:
            parcel: _Parcel = _decoder.decode(payload)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:  # no UTF-8: ValueError
            raise PeerError(f"a parcel cannot be read: {error}") from None
        match parcel:
            case Carried():
                messages = self._codec.decode(parcel.body)
                for to in parcel.to:
                    super().send(parcel.source, to, messages)
            case Spread():
                messages = self._codec.decode(parcel.body)
                super().disseminate(parcel.source, parcel.topic, messages)
            case Listens():
                self._elsewhere[node] = set(parcel.topics)
                self._post(node, Heard(parcel.number))
            case Heard():
                self._heard(node, parcel.number)

    def _heard(self, node: str, number: int) -> None:
        """A node knows our topics as of this number, so those of the numbers before as well."""
        for mine in [one for one in self._unheard if one <= number]:
            place, topics, nodes = self._unheard[mine]
            nodes.discard(node)
            if not nodes & set(self._mesh.connected):
                del self._unheard[mine]
                self._confirm(place, topics)
