"""Two ends of a measurement: one publishes, the other counts; in one process or in two.

Both ends host the machines that nodes host (`net.roles`), one per strategy, without disk. The end
that counts tells the other how far it is, so that no more is under way than a window, and gives its
latencies when asked. Run as a program it is that end, in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import process_time, time_ns
from typing import Any

import msgspec

from concordant.machine.effects import Delivery, Note
from concordant.machine.requests import Publish, Subscribe
from concordant.model.event import Event
from concordant.net.carrier import MemoryCarrier, MeshCarrier
from concordant.net.host import Place
from concordant.net.link import Identity
from concordant.net.nats import NatsOptions, NatsServer, connect
from concordant.net.nats_carrier import NatsCarrier
from concordant.net.nats_links import NatsMesh
from concordant.net.roles import STRATEGIES, Setting, Strategy, message_kinds, part_of, publisher_of
from concordant.net.tcp import Mesh
from concordant.wire.messages import Codec

TOPIC = "T"
LEVELS = ("none", "fifo", "clock", "sequencer")
BARE = "bare"
"""Events over the same transport without any machine, link or order: the ground."""
NODES = ("p", "s")
"""Who publishes (and hosts the sequencer), and who subscribes."""
HOST = "127.0.0.1"
_TOLD_S = 0.001
_events = msgspec.msgpack.Decoder(list[Event])
_encode = msgspec.msgpack.Encoder().encode


def attributes(number: int) -> dict[str, Any]:
    """Those of a quote on a market."""
    return {"symbol": f"S{number % 500}", "price": 100.0 + number % 97, "size": number % 1_000}


class Count:
    """What one strategy's subscriber got."""

    def __init__(self, topic: str = "") -> None:
        """`topic`: only its events are counted in `own` and have latencies."""
        self.total = 0
        self.own = 0
        self.topic = topic
        self.latencies_us: list[int] = []
        self.on_more: Callable[[], None] = lambda: None

    def take(self, deliveries: Sequence[Delivery]) -> None:
        if not self.topic:
            self.took(len(deliveries), deliveries[-1].events[0].time)
            return
        self.total += len(deliveries)
        own = [one for one in deliveries if one.events[0].topic == self.topic]
        if own:
            self.own += len(own)
            self.latencies_us.append(time_ns() // 1_000 - own[-1].events[0].time)
            self.on_more()

    def took(self, count: int, time_us: int) -> None:
        """So many, the last of them published at this time."""
        self.total += count
        self.latencies_us.append(time_ns() // 1_000 - time_us)
        self.on_more()


def setting(node: str) -> Setting:
    placed = {"sequencer/sequencer": part_of("p", "sequencer", "sequencer")}
    return Setting(node, NODES, placed)


class End:
    """The places of one node."""

    def __init__(
        self,
        node: str,
        carrier: MemoryCarrier,
        *,
        levels: Sequence[str] = LEVELS,
        told: Setting | None = None,
        topic: str = "",
    ) -> None:
        """`told`: a setting of more than two nodes; `topic`: what this one publishes to there."""
        self.carrier = carrier
        self.counts = {name: Count(topic) for name in (*levels, BARE)}
        self.publishers: dict[str, Place] = {}
        self.missing: set[tuple[str, str]] = set()
        """Strategies and topics whose subscriptions have not begun."""
        self._topic = topic or TOPIC
        self._levels = levels
        self._setting = told or setting(node)
        for name in levels:
            strategy = STRATEGIES[name]
            for part in strategy.parts(self._setting):
                address = part_of(node, name, part.name)
                if part.everywhere or address in self._setting.placed.values():
                    self._host(address, part.make(self._setting, address), strategy)
            if strategy.feed not in self.publishers:
                address = publisher_of(node, strategy.feed)
                machine = strategy.publisher(self._setting, address)
                self.publishers[strategy.feed] = self._host(address, machine, strategy)

    def subscribe(self, topics: tuple[str, ...] = (TOPIC,)) -> None:
        """Subscribe with every strategy."""
        for name in self._levels:
            strategy = STRATEGIES[name]
            address = f"{self._setting.node}/{strategy.feed}/{name}-subscriber"
            machine = strategy.subscriber(self._setting, address)
            self.missing.update((name, topic) for topic in topics)
            take, hear = self.counts[name].take, partial(self._hear, name)
            place = self._host(address, machine, strategy, take=take, hear=hear)
            place.command(Subscribe(topics))

    def _hear(self, name: str, note: Note) -> None:
        if note.step == "subscribe":
            self.missing -= {(name, topic) for topic in note.topics}

    def _host(
        self, address: str, machine: Any, strategy: Strategy, *, take: Any = None, hear: Any = None
    ) -> Place:
        place = Place(
            address,
            machine,
            self.carrier,
            take=take,
            hear=hear,
            records=strategy.records,
            scope=f"{strategy.feed}:",
        )
        self.carrier.add(place)
        return place

    async def room(self, name: str, count: int) -> None:
        """Wait until so many events more can be published."""
        place = self.publishers[STRATEGIES[name].feed]
        publisher: Any = place.machine
        while publisher.room < count:
            await place.stepped()

    def publish(self, name: str, number: int, count: int) -> None:
        """A batch, for the subscriber of a strategy."""
        requests = [Publish(self._topic, attributes(n)) for n in range(number, number + count)]
        self.publishers[STRATEGIES[name].feed].command(*requests)


def bare_batch(number: int, count: int) -> bytes:
    """The same events as bytes, for the ground."""
    now = time_ns() // 1_000
    events = [Event(TOPIC, "p", n, now, attributes(n)) for n in range(number, number + count)]
    return _encode(events)


@asynccontextmanager
async def over_tcp(
    node: str, ports: dict[str, int], *, codec: type[Codec] = Codec
) -> AsyncIterator[MeshCarrier]:
    mesh = Mesh(Identity("bench", node, node), {n: (HOST, port) for n, port in ports.items()})
    await mesh.start(HOST, ports[node])
    carrier = MeshCarrier(mesh, codec(message_kinds(STRATEGIES.values())))
    try:
        yield carrier
    finally:
        await carrier.stop()
        await mesh.stop()


@asynccontextmanager
async def over_nats(node: str, url: str) -> AsyncIterator[tuple[NatsServer, NatsCarrier]]:
    server = await connect(NatsOptions((url,)), name=node)
    mesh = NatsMesh(Identity("bench", node, node), NODES, server)
    await mesh.start()
    carrier = NatsCarrier(mesh, Codec(message_kinds(STRATEGIES.values())))
    await carrier.start()
    try:
        yield server, carrier
    finally:
        await carrier.stop()
        await mesh.stop()
        await server.stop()


# --- the end that counts, as a program ------------------------------------------------------------


async def main(transport: str, where: str, bare_port: str) -> None:
    if transport == "tcp":
        async with over_tcp("s", json.loads(where)) as carrier:
            end = End("s", carrier)
            await _bare_tcp(end.counts[BARE], int(bare_port))
            await _count(end)
        return
    async with over_nats("s", where) as (server, carrier_over_nats):
        end = End("s", carrier_over_nats)
        count = end.counts[BARE]

        async def take(message: Any) -> None:
            events = _events.decode(message.data)
            count.took(len(events), events[-1].time)

        await server.subscribe("bench.bare", take)
        await _count(end)


async def _count(end: End) -> None:
    """Count until nobody wants to know any more."""
    end.subscribe()
    loop = asyncio.get_running_loop()
    telling = False

    def tell() -> None:
        nonlocal telling
        telling = False
        totals = {name: one.total for name, one in end.counts.items()}
        _say({"cpu_s": process_time(), "totals": totals})

    def more() -> None:
        nonlocal telling
        if not telling:
            telling = True
            loop.call_later(_TOLD_S, tell)

    for one in end.counts.values():
        one.on_more = more
    _say({"cpu_s": process_time(), "totals": {}})
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        name = line.decode().strip()
        latencies, end.counts[name].latencies_us = end.counts[name].latencies_us, []
        _say({"cpu_s": process_time(), "latencies_us": latencies})


async def _bare_tcp(count: Count, port: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(EOFError, OSError):
            while True:
                size = int.from_bytes(await reader.readexactly(4), "big")
                events = _events.decode(await reader.readexactly(size))
                count.took(len(events), events[-1].time)
        writer.close()

    await asyncio.start_server(serve, HOST, port, limit=1 << 24)


def _say(value: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


# --- the end that publishes -----------------------------------------------------------------------

Send = Callable[[int, int], Awaitable[None]]
"""Sends a batch: the number of its first event, and how many."""


class Rig:
    """Both ends over one transport, from here."""

    def __init__(self, end: End, totals: dict[str, int], *, wait: Callable[[], Awaitable[None]]):
        self.end = end
        self.totals = totals
        """What the other end has got so far."""
        self.wait = wait
        """Until it has got more."""
        self.other_cpu_s = 0.0
        """Processor time of the other process, as it said last; 0 if there is none."""
        self.latencies: Callable[[str], Awaitable[list[int]]]
        self.bare: Send | None = None
        self._sent = dict.fromkeys((*LEVELS, BARE), 0)

    async def publish(self, name: str, count: int) -> None:
        """One batch."""
        number = self._sent[name]
        if name == BARE:
            assert self.bare is not None
            await self.bare(number, count)
        else:
            self.end.publish(name, number, count)
        self._feed_sent(name, count)

    def _feed_sent(self, name: str, count: int) -> None:
        """Strategies of one feed get the same events."""
        feed = STRATEGIES[name].feed if name != BARE else BARE
        for other in self._sent:
            if other == name or (other != BARE and STRATEGIES[other].feed == feed):
                self._sent[other] += count

    def cpu_s(self) -> tuple[float, float]:
        """Processor time of both processes."""
        return process_time(), self.other_cpu_s

    def under_way(self, name: str) -> int:
        return self._sent[name] - self.totals[name]


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
