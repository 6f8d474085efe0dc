"""Links over real sockets: cut at random, attacked, flooded; nothing lost, doubled or unbounded."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from random import Random

import pytest
import trustme

from concordant.errors import UsageError
from concordant.net import mesh as module
from concordant.net.link import (
    FRAME_BYTES_MAX,
    VERSION,
    Hello,
    Identity,
    Link,
    Taken,
    encode_frame,
)
from concordant.net.mesh import MeshOptions
from concordant.net.tcp import Mesh

QUICK = MeshOptions(greeting_s=0.5, silence_s=1.0, alive_s=0.2, retry_s=0.01, retry_s_max=0.05)
HOST = "127.0.0.1"


def mesh(node: str, peers: dict[str, int], *, life: str = "1", token: str = "t") -> Mesh:
    return Mesh(
        Identity("c", node, life, token, window_bytes=2_000),
        {name: (HOST, port) for name, port in peers.items()},
        options=QUICK,
    )


class Proxy:
    """Carries bytes between a client and a server, and cuts every connection in the middle."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.target = 0
        self.cut_count = 0

    async def start(self) -> int:
        self.server = await asyncio.start_server(self._carry, HOST, 0)
        return int(self.server.sockets[0].getsockname()[1])

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other = await asyncio.open_connection(HOST, self.target)
        except OSError:
            writer.close()
            return
        left = [self.rng.randint(100, 60_000)]
        await asyncio.gather(
            self._pump(reader, other, left, writer), self._pump(other_reader, writer, left, other)
        )

    async def _pump(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        left: list[int],
        other: asyncio.StreamWriter,
    ) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(700):
                left[0] -= len(data)
                writer.write(data[: max(0, left[0])])
                await writer.drain()
                if left[0] < 0:
                    self.cut_count += 1
                    other.transport.abort()
                    break
        writer.transport.abort()


@contextlib.asynccontextmanager
async def running(*meshes: Mesh) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for one in meshes:
            await one.stop()


async def take(node: Mesh, count: int) -> list[bytes]:
    return [(await received(node))[1] for _ in range(count)]


async def received(node: Mesh) -> tuple[str, bytes]:
    """The next payload; connections that were made are passed over."""
    while not (found := await node.receive())[1]:
        pass
    return found


async def test_payloads_arrive_once_and_in_order_though_connections_are_cut() -> None:
    rng = Random(5)
    proxy = Proxy(rng)
    b = mesh("b", {"a": 0})
    proxy.target = await b.start(HOST, 0)
    a = mesh("a", {"b": await proxy.start()})
    await a.start(HOST, 0)
    sent = [b"%d " % i + bytes(rng.randint(0, 300)) for i in range(1_500)]
    back = [b"back %d" % i for i in range(500)]

    async def send(node: Mesh, to: str, payloads: list[bytes]) -> None:
        for payload in payloads:
            await node.send(to, payload)

    async with running(a, b):
        found = await asyncio.wait_for(
            asyncio.gather(
                take(b, len(sent)), take(a, len(back)), send(a, "b", sent), send(b, "a", back)
            ),
            60,
        )
        assert found[0] == sent
        assert found[1] == back
        assert proxy.cut_count > 5
        proxy.server.close()


async def test_a_sender_waits_for_a_receiver_that_takes_nothing() -> None:
    b = mesh("b", {"a": 0})
    port = await b.start(HOST, 0)
    a = Mesh(
        Identity("c", "a", "1", "t"),
        {"b": (HOST, port)},
        options=MeshOptions(waiting_bytes_max=5_000),
    )
    await a.start(HOST, 0)
    async with running(a, b):
        sending = asyncio.create_task(_send_many(a, 100))
        _, waiting = await asyncio.wait([sending], timeout=0.5)
        assert waiting  # window and bound hold about 7,000 of the 100,000 bytes
        assert a.pending_count("b") < 10
        assert len(await take(b, 100)) == 100
        await asyncio.wait_for(sending, 10)


async def _send_many(node: Mesh, count: int) -> None:
    for _ in range(count):
        await node.send("b", bytes(1_000))


async def test_what_was_taken_is_told_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOLD_S", 0.3)
    told: list[int] = []
    own = Link.took

    def took(self: Link, count: int) -> Taken:
        told.append(count)
        return own(self, count)

    monkeypatch.setattr(Link, "took", took)
    b = mesh("b", {"a": 0})
    a = mesh("a", {"b": await b.start(HOST, 0)})
    await a.start(HOST, 0)
    async with running(a, b), asyncio.timeout(10):
        for _ in range(20):
            await a.send("b", b"one by one")
            await take(b, 1)
        b.take()
        while a.pending_count("b"):
            await asyncio.sleep(0.01)
    assert sum(told) == 20
    assert len(told) < 20


async def test_what_was_taken_is_told_with_what_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TOLD_S", 60.0)
    b = mesh("b", {"a": 0})
    a = mesh("a", {"b": await b.start(HOST, 0)})
    await a.start(HOST, 0)
    async with running(a, b), asyncio.timeout(10):
        await a.send("b", b"a question")
        await take(b, 1)
        b.take()
        assert a.pending_count("b") == 1
        await b.send("a", b"an answer")
        await take(a, 1)
        assert a.pending_count("b") == 0


async def test_what_a_former_life_sent_is_not_counted_as_taken_from_the_next() -> None:
    b = mesh("b", {"a": 0})
    port = await b.start(HOST, 0)
    first = mesh("a", {"b": port}, life="1")
    await first.start(HOST, 0)
    async with running(b):
        async with running(first):
            for number in range(3):
                await first.send("b", b"old %d" % number)
            async with asyncio.timeout(5):
                while len(b._arrived) < 4:  # it was connected, and three payloads
                    await asyncio.sleep(0.01)
        second = mesh("a", {"b": port}, life="2")
        await second.start(HOST, 0)
        async with running(second), asyncio.timeout(5):
            for number in range(2):
                await second.send("b", b"new %d" % number)
            assert await take(b, 5) == [b"old 0", b"old 1", b"old 2", b"new 0", b"new 1"]
            b.take()
            while second.pending_count("b"):
                await asyncio.sleep(0.01)
        assert not any("never sent" in reason for reason in (*b.refused, *second.refused))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "a frame of 1,195,725,856 bytes"),
        ((FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "a frame of 16,777,217 bytes"),
        (b"\x00\x00\x00\x05hello", "a frame cannot be read"),
        (encode_frame(Hello(VERSION, "c", "a", "1", token="guess")), "name and token"),
        (
            encode_frame(Hello(VERSION, "c", "stranger", "1", token="t")),
            "is no member of the cluster",
        ),
        (encode_frame(Hello(7, "c", "a", "1", token="t")), "version 7"),
        (b"", "IncompleteReadError"),
    ],
)
async def test_a_stranger_is_refused_with_a_counted_reason(data: bytes, reason: str) -> None:
    b = mesh("b", {"a": 0})
    port = await b.start(HOST, 0)
    async with running(b):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(data)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), 5)  # it closes
        writer.close()
        assert [one for one in b.refused if reason in one], b.refused


async def test_who_says_nothing_is_let_go_and_many_of_them_cannot_keep_others_out() -> None:
    b = mesh("b", {"a": 0})
    port = await b.start(HOST, 0)
    async with running(b):
        silent = [await asyncio.open_connection(HOST, port) for _ in range(80)]
        closed = [reader.read() for reader, _ in silent]
        await asyncio.wait_for(asyncio.gather(*closed), 10)
        assert b.refused["TimeoutError"] > 0
        assert b.refused["too many connections that have not greeted"] > 0
        for _, writer in silent:
            writer.close()
        a = mesh("a", {"b": port})
        await a.start(HOST, 0)
        async with running(a):
            await a.send("b", b"hello")
            assert await asyncio.wait_for(received(b), 5) == ("a", b"hello")


async def test_fuzzed_frames_after_a_good_greeting_end_that_connection_only() -> None:
    rng = Random(3)
    b = mesh("b", {"a": 0, "z": 0})
    port = await b.start(HOST, 0)
    a = mesh("a", {"b": port})
    await a.start(HOST, 0)
    async with running(a, b):
        for number in range(40):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(encode_frame(Hello(VERSION, "c", "z", str(number), token="t")))
            body = rng.randbytes(rng.randint(0, 60))
            writer.write(len(body).to_bytes(4, "big") + body)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
        assert len(b.refused) <= 65
        assert sum(b.refused.values()) == 40
        await a.send("b", b"still there")
        assert await asyncio.wait_for(received(b), 5) == ("a", b"still there")


def contexts(authority: trustme.CA) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """For a node that shows its certificate, and wants to see one of the same authority."""
    found = []
    for purpose in (ssl.Purpose.CLIENT_AUTH, ssl.Purpose.SERVER_AUTH):
        context = ssl.create_default_context(purpose)
        authority.configure_trust(context)
        authority.issue_cert(HOST).configure_cert(context)
        context.verify_mode = ssl.CERT_REQUIRED
        found.append(context)
    return found[0], found[1]


async def test_over_tls_members_talk_and_who_has_no_certificate_stays_outside() -> None:
    authority, foreign = trustme.CA(), trustme.CA()
    server, client = contexts(authority)

    def secured(node: str, peers: dict[str, int], client_tls: ssl.SSLContext) -> Mesh:
        addresses = {name: (HOST, port) for name, port in peers.items()}
        me = Identity("c", node, "1", "t")
        return Mesh(me, addresses, options=QUICK, server_tls=server, client_tls=client_tls)

    b = secured("b", {"a": 0}, client)
    port = await b.start(HOST, 0)
    stranger = secured("a", {"b": port}, contexts(foreign)[1])
    await stranger.start(HOST, 0)
    async with running(b):
        async with running(stranger):
            await stranger.send("b", b"let me in")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await b.receive()
            assert stranger.pending_count("b") == 1
        a = secured("a", {"b": port}, client)
        await a.start(HOST, 0)
        async with running(a):
            await a.send("b", b"hello")
            assert await asyncio.wait_for(received(b), 5) == ("a", b"hello")


async def test_a_port_in_use_and_an_unknown_peer_are_usage_errors() -> None:
    b = mesh("b", {"a": 0})
    port = await b.start(HOST, 0)
    async with running(b):
        with pytest.raises(UsageError, match="cannot listen on"):
            await mesh("c", {}).start(HOST, port)
        with pytest.raises(UsageError, match="there is no peer 'x'"):
            await b.send("x", b"")
        with pytest.raises(UsageError, match="cannot be sent"):
            await b.send("a", bytes(FRAME_BYTES_MAX))
