"""Messages over NATS topics: copied by the server, holes counted and asked for, kept if wanted."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from random import Random
from typing import Any

import msgspec
import pytest

from concordant.errors import UsageError
from concordant.machine.effects import Delivery
from concordant.machine.requests import Publish, Subscribe, Unsubscribe
from concordant.net.host import Place
from concordant.net.link import Identity
from concordant.net.nats import DurableOptions, NatsServer, connect
from concordant.net.nats_carrier import NatsCarrier
from concordant.net.nats_links import NatsMesh
from concordant.order.client import Client
from concordant.order.fifo import FifoClient, Here, Where
from concordant.order.none import NoneClient
from concordant.order.streams import Ask, Gone, Mark, Numbered
from concordant.wire.messages import Codec
from tests.network.nats_process import NatsProcess
from tests.network.test_nats import QUICK, LossyServer, options_for

CODEC = Codec((Numbered, Mark, Ask, Gone, Where, Here))
STRANGE = ("plain", "two words", "a.b.*.>", "Ωmega/%41", "new\nline")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    made = NatsProcess(tmp_path_factory.mktemp("nats"), "-js")
    yield made
    made.stop()


class Node:
    """One client on one node, and what it took."""

    def __init__(self, carrier: NatsCarrier, client: Client) -> None:
        self.carrier = carrier
        self.taken: list[str] = []
        self._more = asyncio.Event()
        self.place = Place(client.name, client, carrier, take=self._take)
        carrier.add(self.place)

    def _take(self, deliveries: Sequence[Delivery]) -> None:
        self.taken += [event.id for one in deliveries for event in one.events]
        self._more.set()

    async def wait_for(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.taken) < count:
                self._more.clear()
                await self._more.wait()

    async def listens_to(self, *topics: str) -> None:
        """Until the server knows it."""
        async with asyncio.timeout(10):
            while not set(topics) <= self.carrier._brought:
                await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def node(
    server: NatsProcess,
    client: Client,
    peers: str,
    *,
    cluster: str,
    life: str = "1",
    lossy: Random | None = None,
    durable: DurableOptions | None = None,
) -> AsyncIterator[Node]:
    connection: NatsServer
    if lossy is None:
        connection = NatsServer(options_for(server, durable=durable), name=client.name)
    else:
        connection = LossyServer(
            options_for(server), name=client.name, rng=lossy, share=0.2, among=".topic."
        )
    mesh = NatsMesh(Identity(cluster, client.name, life), list(peers), connection, options=QUICK)
    async with contextlib.AsyncExitStack() as stack:
        await connection.start()
        stack.push_async_callback(connection.stop)
        await mesh.start()
        stack.push_async_callback(mesh.stop)
        carrier = NatsCarrier(mesh, CODEC)
        stack.push_async_callback(carrier.stop)
        await carrier.start()
        made = Node(carrier, client)
        stack.push_async_callback(made.place.stop)
        yield made


async def test_topics_of_any_name_reach_all_who_listen_the_own_node_too(
    server: NatsProcess,
) -> None:
    both = NoneClient("p", publishes=STRANGE, topics=STRANGE)
    async with (
        node(server, both, "xy", cluster="any") as p,
        node(server, NoneClient("x", topics=STRANGE), "py", cluster="any") as x,
        node(server, NoneClient("y", topics=STRANGE[:1]), "px", cluster="any") as y,
    ):
        for one in (x, p):
            await one.listens_to(*STRANGE)
        await y.listens_to(STRANGE[0])
        for topic in STRANGE:
            p.place.command(Publish(topic, {"n": 1}))
        for one in (x, p):
            await one.wait_for(len(STRANGE))
            assert sorted(one.taken) == [f"p:{n}" for n in range(1, len(STRANGE) + 1)]
        await y.wait_for(1)
        assert y.taken == ["p:1"]
        assert x.carrier.hole_count == x.carrier.refused_count == 0


async def test_what_is_lost_on_a_topic_is_counted_and_fifo_asks_for_it(
    server: NatsProcess,
) -> None:
    rng = Random(11)
    sources = {"A": ("p",)}
    publisher = FifoClient("p", publishes=("A",), sources=sources)
    subscriber = FifoClient("x", topics=("A",), sources=sources)
    async with (
        node(server, publisher, "x", cluster="holes", lossy=rng) as p,
        node(server, subscriber, "p", cluster="holes", lossy=rng) as x,
    ):
        await x.listens_to("A")
        for _ in range(200):
            p.place.command(Publish("A", {"n": 1}))
            await asyncio.sleep(0)
        await x.wait_for(200)
        assert x.taken == [f"p:{n}" for n in range(1, 201)]
        assert x.carrier.hole_count > 0


async def test_a_topic_is_ignored_and_listened_to_again(server: NatsProcess) -> None:
    sources = {"A": ("p",)}
    publisher = FifoClient("p", publishes=("A",), sources=sources)
    async with (
        node(server, publisher, "x", cluster="again") as p,
        node(server, FifoClient("x", sources=sources), "p", cluster="again") as x,
    ):
        x.place.command(Subscribe(("A",)))
        await x.listens_to("A")
        async with asyncio.timeout(10):
            while x.place.machine.held_count:
                await asyncio.sleep(0.005)
        p.place.command(Publish("A"))
        await x.wait_for(1)
        x.place.command(Unsubscribe(("A",)))
        async with asyncio.timeout(10):
            while x.carrier._brought:
                await asyncio.sleep(0.005)
        p.place.command(Publish("A"))
        x.place.command(Subscribe(("A",)))
        await x.listens_to("A")
        async with asyncio.timeout(10):
            while x.place.machine.held_count:
                await asyncio.sleep(0.005)
        p.place.command(Publish("A"))
        await x.wait_for(2)
        assert x.taken == ["p:1", "p:3"]


async def test_with_jetstream_a_node_gets_what_was_published_while_it_was_away(
    server: NatsProcess,
) -> None:
    durable = DurableOptions(in_memory=True)
    publisher = NoneClient("p", publishes=("A",))

    def subscriber() -> NoneClient:
        return NoneClient("x", topics=("A",))

    async with node(server, publisher, "x", cluster="kept", durable=durable) as p:
        async with node(server, subscriber(), "p", cluster="kept", durable=durable) as x:
            await x.listens_to("A")
            p.place.command(Publish("A"), Publish("A"))
            await x.wait_for(2)
            async with asyncio.timeout(5):  # taken means: the server need not give it again
                while (await info(x, "x-A")).num_ack_pending:
                    await asyncio.sleep(0.01)
        p.place.command(*[Publish("A")] * 300)
        async with node(server, subscriber(), "p", cluster="kept", life="2", durable=durable) as x:
            await x.wait_for(300)
            assert x.taken == [f"p:{n}" for n in range(3, 303)]


async def info(x: Node, consumer: str) -> Any:
    mesh = x.carrier._mesh
    assert isinstance(mesh, NatsMesh)
    return await mesh.server.client.jetstream().consumer_info("concordant-kept", consumer)


async def test_without_jetstream_durable_topics_are_refused_kindly(tmp_path: Any) -> None:
    own = NatsProcess(tmp_path)
    try:
        client = NoneClient("p", publishes=("A",))
        with pytest.raises(UsageError, match=r"keeps no streams.*\n  try: start it with JetStream"):
            async with node(own, client, "x", cluster="c", durable=DurableOptions()):
                pass
    finally:
        own.stop()


async def test_rubbish_on_a_topic_is_counted(server: NatsProcess) -> None:
    async with node(server, NoneClient("x", topics=("A",)), "p", cluster="rubbish") as x:
        await x.listens_to("A")
        stranger = await connect(options_for(server), name="stranger")
        rng = Random(1)
        good = CODEC.encode([])
        bodies = [rng.randbytes(rng.randint(0, 40)) for _ in range(100)]
        bodies += [
            msgspec.msgpack.encode(one)
            for one in (
                ("stranger", "1", 1, []),
                ("p", "1", 0, []),
                ("p", "1", -(2**63), [("p", good)]),
                ("p", "1", 1, [("p", b"\xc1")]),
            )
        ]
        for body in bodies:
            await stranger.publish(stranger.subject("rubbish", "topic", "A"), body)
        async with asyncio.timeout(10):
            while x.carrier.refused_count < len(bodies):
                await asyncio.sleep(0.005)
        await stranger.stop()


async def test_a_topic_that_the_server_forbids_is_said(tmp_path: Any) -> None:
    config = """authorization { users = [ { user: me, password: x, permissions: {
        publish: ">", subscribe: ["concordant.c.node.>", "_INBOX.>"] } } ] }"""
    own = NatsProcess(tmp_path, config=config)
    options = options_for(own, user="me", password="x")
    connection = await connect(options, name="x")
    mesh = NatsMesh(Identity("c", "x", "1"), "p", connection, options=QUICK)
    await mesh.start()
    carrier = NatsCarrier(mesh, CODEC)
    try:
        Node(carrier, NoneClient("x", topics=("A",)))
        async with asyncio.timeout(10):
            while carrier.failure is None:
                await asyncio.sleep(0.005)
        assert "does not let us listen to 'concordant.c.topic.A'" in str(carrier.failure)
    finally:
        await carrier.stop()
        await mesh.stop()
        await connection.stop()
        own.stop()


async def test_what_waits_for_a_server_that_stays_away_is_bounded(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("concordant.net.nats_carrier.WAITING_COUNT_MAX", 10)
    own = NatsProcess(tmp_path)
    async with node(own, NoneClient("p", publishes=("A",)), "x", cluster="c") as p:
        own.kill()
        mesh = p.carrier._mesh
        assert isinstance(mesh, NatsMesh)
        async with asyncio.timeout(10):
            while mesh.server.is_connected:
                await asyncio.sleep(0.005)
        for _ in range(100):
            p.place.command(Publish("A"))
        await asyncio.sleep(0)
        assert p.carrier.dropped_count == pytest.approx(90, abs=1)
