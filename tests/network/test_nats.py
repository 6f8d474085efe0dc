"""Over a real NATS server: nothing lost on links, holes found on topics, kind errors, TLS."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import msgspec
import nkeys
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from concordant.errors import UsageError
from concordant.net.link import Identity
from concordant.net.mesh import MeshOptions
from concordant.net.nats import NatsOptions, NatsServer, connect, name_of, token_of
from concordant.net.nats_links import NatsMesh
from tests.network.nats_process import NatsProcess

QUICK = MeshOptions(greeting_s=0.5, silence_s=1.0, alive_s=0.2, retry_s=0.01, retry_s_max=0.05)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    made = NatsProcess(tmp_path_factory.mktemp("nats"), "-js")
    yield made
    made.stop()


class LossyServer(NatsServer):
    """A connection that loses some of what is published."""

    def __init__(
        self, options: NatsOptions, *, name: str, rng: Random, share: float, among: str = ""
    ) -> None:
        super().__init__(options, name=name)
        self.among = among
        self.rng = rng
        self.share = share

    async def publish(self, subject: str, data: bytes) -> None:
        if self.among not in subject or self.rng.random() >= self.share:
            await super().publish(subject, data)


def options_for(server: NatsProcess, **others: object) -> NatsOptions:
    return msgspec.structs.replace(NatsOptions((server.url,), retry_s=0.05), **others)


@contextlib.asynccontextmanager
async def mesh(
    server: NatsProcess,
    node: str,
    peers: str,
    *,
    life: str = "1",
    token: str = "t",
    cluster: str = "c",
    lossy: Random | None = None,
) -> AsyncIterator[NatsMesh]:
    options = options_for(server)
    if lossy is None:
        connection = NatsServer(options, name=node)
    else:
        connection = LossyServer(options, name=node, rng=lossy, share=0.1)
    await connection.start()
    me = Identity(cluster, node, life, token, window_bytes=20_000)
    made = NatsMesh(me, list(peers), connection, options=QUICK)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
        await connection.stop()


async def received(node: NatsMesh) -> tuple[str, bytes]:
    """The next payload; connections that were made are passed over."""
    while not (found := await node.receive())[1]:
        pass
    return found


async def take(node: NatsMesh, count: int) -> list[bytes]:
    return [(await received(node))[1] for _ in range(count)]


async def send(node: NatsMesh, to: str, payloads: list[bytes]) -> None:
    for payload in payloads:
        await node.send(to, payload)


async def test_payloads_arrive_once_and_in_order_though_chunks_are_lost(
    server: NatsProcess,
) -> None:
    rng = Random(7)
    sent = [b"%d " % i + bytes(rng.randint(0, 3_000)) for i in range(600)]
    back = [b"back %d" % i for i in range(300)]
    async with (
        mesh(server, "a", "b", cluster="lossy", lossy=rng) as a,
        mesh(server, "b", "a", cluster="lossy", lossy=rng) as b,
    ):
        async with asyncio.timeout(60):
            found = await asyncio.gather(
                take(b, len(sent)), take(a, len(back)), send(a, "b", sent), send(b, "a", back)
            )
        assert found[0] == sent
        assert found[1] == back
        assert a.cut_count + b.cut_count > 3


async def test_a_payload_longer_than_a_message_of_nats_goes_in_chunks(server: NatsProcess) -> None:
    long = Random(1).randbytes(3_000_000)
    async with (
        mesh(server, "a", "b", cluster="long") as a,
        mesh(server, "b", "a", cluster="long") as b,
    ):
        async with asyncio.timeout(20):
            await a.send("b", long)
            assert await received(b) == ("a", long)


async def test_the_server_falls_and_comes_back_and_nothing_is_lost(tmp_path: Path) -> None:
    own = NatsProcess(tmp_path)
    try:
        async with mesh(own, "a", "b") as a, mesh(own, "b", "a") as b:
            sent = [b"%d" % i for i in range(1, 301)]
            async with asyncio.timeout(30):
                await send(a, "b", sent[:100])
                found = await take(b, 50)
                await asyncio.to_thread(own.kill)
                sending = asyncio.create_task(send(a, "b", sent[100:]))
                await asyncio.to_thread(own.start)
                found += await take(b, 250)
                await sending
                while not a.server.reconnected_count:  # the client tells it in a task of its own
                    await asyncio.sleep(0)
            assert found == sent
            assert a.server.reconnected_count == 1
    finally:
        own.stop()


async def test_a_node_that_begins_a_new_life_is_found_at_once(server: NatsProcess) -> None:
    async with mesh(server, "a", "b", cluster="lives") as a:
        await a.send("b", b"before it is there")
        async with asyncio.timeout(10):
            async with mesh(server, "b", "a", cluster="lives") as b:
                assert await received(b) == ("a", b"before it is there")
                b.take()
                await b.send("a", b"x")
                assert await received(a) == ("b", b"x")
            await a.send("b", b"while it is away")
            async with mesh(server, "b", "a", cluster="lives", life="2") as b:
                assert await received(b) == ("a", b"while it is away")


async def test_who_does_not_know_the_token_is_refused_and_counted(server: NatsProcess) -> None:
    async with (
        mesh(server, "a", "b", cluster="token", token="guess") as a,
        mesh(server, "b", "a", cluster="token") as b,
    ):
        await a.send("b", b"let me in")
        async with asyncio.timeout(10):
            while not any("name and token" in reason for reason in b.refused):
                await asyncio.sleep(0.01)
        assert a.pending_count("b") == 1
        assert b.connected == []


RUBBISH = (
    "a chunk cannot be read",
    "a chunk of nobody in the cluster",
    "a chunk of no connection",
)


async def test_rubbish_on_a_nodes_subject_is_counted_and_changes_nothing(
    server: NatsProcess,
) -> None:
    rng = Random(3)
    async with (
        mesh(server, "a", "b", cluster="rubbish") as a,
        mesh(server, "b", "a", cluster="rubbish") as b,
    ):
        stranger = await connect(options_for(server), name="stranger")
        subject = stranger.subject("rubbish", "node", "b")
        bodies = [rng.randbytes(rng.randint(0, 60)) for _ in range(200)]
        bodies += [
            msgspec.msgpack.encode(chunk)
            for chunk in (("z", "x", 1, b""), ("a", "none", 9, b""), ("a", "none", -5, b"x"))
        ]
        for body in bodies:
            await stranger.publish(subject, body)
        await stranger.flush()
        await a.send("b", b"still there")
        async with asyncio.timeout(10):
            assert await received(b) == ("a", b"still there")
            while sum(b.refused[kind] for kind in RUBBISH) < len(bodies):
                await asyncio.sleep(0.01)
        await stranger.stop()
        # On a busy machine a first connection between the two may break, and is made again.
        assert set(b.refused) <= {*RUBBISH, "IncompleteReadError"}


# --- the connection to a server -------------------------------------------------------------------


async def test_no_server_is_a_kind_error(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"no NATS server answers at nats://127.0.0.1:1.*\n  try: start"
    ):
        await connect(NatsOptions(("nats://me:secret@127.0.0.1:1",), connect_s=0.3), name="x")
    with pytest.raises(UsageError) as found:
        await connect(NatsOptions(("nats://me:secret@127.0.0.1:1",), connect_s=0.3), name="x")
    assert "secret" not in str(found.value)
    with pytest.raises(UsageError, match="no such file of credentials"):
        await connect(NatsOptions(credentials=str(tmp_path / "none.creds")), name="x")
    with pytest.raises(UsageError, match="the certificates cannot be read"):
        await connect(NatsOptions(authority=str(tmp_path / "none.pem")), name="x")
    with pytest.raises(UsageError, match="cannot connect to NATS at nats://:x"):
        await connect(NatsOptions(("nats://:x",)), name="x")


async def test_who_shows_the_wrong_password_is_told_so(tmp_path: Path) -> None:
    own = NatsProcess(tmp_path, "--user", "me", "--pass", "right")
    try:
        with pytest.raises(UsageError, match="does not let us in"):
            await connect(options_for(own, user="me", password="wrong"), name="x")
        with pytest.raises(UsageError, match="does not let us in"):
            await connect(options_for(own), name="x")
        good = await connect(options_for(own, user="me", password="right"), name="x")
        assert good.is_connected
        await good.stop()
    finally:
        own.stop()


async def test_an_nkey_lets_in(tmp_path: Path) -> None:
    seed = nkeys.encode_seed(Random(1).randbytes(32), nkeys.PREFIX_BYTE_USER)
    public = nkeys.from_seed(seed).public_key.decode()
    (tmp_path / "seed.nk").write_bytes(bytes(seed))
    own = NatsProcess(
        tmp_path / "s", config=f"authorization {{ users = [ {{ nkey: {public} }} ] }}"
    )
    try:
        good = await connect(options_for(own, nkey=str(tmp_path / "seed.nk")), name="x")
        assert good.is_connected
        await good.stop()
        with pytest.raises(UsageError, match="does not let us in"):
            await connect(options_for(own), name="x")
    finally:
        own.stop()


async def test_a_subject_that_the_server_does_not_let_us_listen_to_is_said(tmp_path: Path) -> None:
    config = """authorization { users = [ { user: me, password: x, permissions: {
        publish: ">", subscribe: ["concordant.>", "_INBOX.>"] } } ] }"""
    own = NatsProcess(tmp_path, config=config)

    async def take(message: object) -> None:
        raise AssertionError

    try:
        found = await connect(options_for(own, user="me", password="x"), name="x")
        await found.subscribe("concordant.a", take)
        with pytest.raises(UsageError, match=r"does not let us listen to 'other\.a'"):
            await found.subscribe("other.a", take)
        await found.stop()
    finally:
        own.stop()


async def test_over_tls_both_sides_show_certificates(tmp_path: Path) -> None:
    authority, foreign = trustme.CA(), trustme.CA()
    files = {}
    for name, made in (("ca", authority), ("foreign", foreign)):
        files[name] = tmp_path / f"{name}.pem"
        made.cert_pem.write_to_path(files[name])
    for name in ("server", "client"):
        issued = authority.issue_cert("127.0.0.1")
        files[name], files[f"{name}-key"] = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        issued.cert_chain_pems[0].write_to_path(files[name])
        issued.private_key_pem.write_to_path(files[f"{name}-key"])
    own = NatsProcess(
        tmp_path / "s",
        *("--tlsverify", "--tlscert", str(files["server"]), "--tlskey", str(files["server-key"])),
        *("--tlscacert", str(files["ca"])),
    )
    shown = {"certificate": str(files["client"]), "key": str(files["client-key"])}
    try:
        good = await connect(options_for(own, authority=str(files["ca"]), **shown), name="x")
        assert good.is_connected
        await good.stop()
        with pytest.raises(UsageError, match="no TLS connection with the NATS server"):
            await connect(options_for(own, authority=str(files["foreign"]), **shown), name="x")
    finally:
        own.stop()


@given(st.text(min_size=1, max_size=80))
def test_any_name_is_one_token_of_a_subject_and_comes_back(name: str) -> None:
    token = token_of(name)
    assert not set(token) & set(" .*>\t\r\n")
    assert token.isascii()
    assert name_of(token) == name


def test_a_name_too_long_for_a_subject_is_refused() -> None:
    for name in ("", "x" * 1_025, "\u00e9" * 200, "\ud800"):
        with pytest.raises(UsageError, match="cannot be part of a NATS subject"):
            token_of(name)
