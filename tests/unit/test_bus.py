"""The bus as an application sees it: orders, patterns, breaks, slow readers, bad input."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from concordant.bus import Bus, Subscription
from concordant.errors import ConcordantError, PeerError, UsageError
from concordant.net.caller import CallerOptions
from concordant.net.cluster import Cluster, cluster_from
from concordant.net.node import Node
from tests.ports import free_ports

ALL = ("none", "fifo", "sequencer", "clock")
ORDERS = [("none", ""), ("fifo", ""), ("total strict", "sequencer"), ("total strict", "clock")]
QUICK = CallerOptions(retry_s=0.01, retry_s_max=0.05, connect_s=2.0)
KINDS = {"Order": {"n": "int"}, "Payment": {"n": "int"}}


def rows(topic: str, first: int, count: int) -> list[dict[str, Any]]:
    return [{"topic": topic, "n": n} for n in range(first, first + count)]


async def ids(found: Subscription, count: int) -> list[str]:
    async with asyncio.timeout(20):
        return [(await anext(found)).events[0].id for _ in range(count)]


def cluster(*, data: str = "", extra: str = "", strategies: tuple[str, ...] = ALL) -> Cluster:
    (port,) = free_ports(1)
    return cluster_from(
        f'[cluster]\nname = "test"\ndata = "{data}"\nstrategies = {list(strategies)}\n'
        f'[nodes.n1]\ndoor = "127.0.0.1:{port}"\n{extra}\n'
    )


@contextlib.asynccontextmanager
async def running(made: Cluster, beside: Path | None = None) -> AsyncIterator[Node]:
    node = Node(made, "n1", beside=beside)
    await node.start()
    try:
        yield node
    finally:
        await node.stop()


def door(made: Cluster) -> str:
    return f"tcp://{made.nodes['n1'].door}"


# --- orders ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "strategy"), ORDERS)
async def test_what_is_published_is_delivered_with_position_and_order(
    order: str, strategy: str
) -> None:
    async with (
        Bus.open("memory:", name="shop", strategies=ALL) as bus,
        bus.subscribe("Order, Payment", order=order, strategy=strategy) as found,
    ):
        assert await bus.publish("Order", {"n": 0}) == "shop:1"
        assert await bus.publish(rows("Payment", 1, 300)) == "shop:301"
        deliveries = [await anext(found) for _ in range(301)]
    assert [one.events[0].attributes["n"] for one in deliveries] == list(range(301))
    assert [one.position for one in deliveries] == list(range(1, 302))
    assert all(one.in_order for one in deliveries)


@pytest.mark.parametrize(("order", "strategy"), ORDERS[2:])
async def test_publishers_come_and_go_and_all_subscribers_see_one_order(
    order: str, strategy: str
) -> None:
    made = cluster()
    async with running(made), Bus.open(door(made)) as bus, Bus.open(door(made)) as other:
        one = bus.subscribe("Order, Payment", order=order, strategy=strategy)
        two = other.subscribe("Payment, Order", order=order, strategy=strategy)

        async def publish(number: int) -> None:
            async with Bus.open(door(made), name=f"p{number}") as mine:
                for n in range(20):
                    await mine.publish(("Order", "Payment")[n % 2], {"n": n})

        async with one, two:
            await asyncio.gather(*(publish(number) for number in range(5)))
            first, second = await ids(one, 100), await ids(two, 100)
            assert first == second
            async with bus.subscribe("Order", order=order, strategy=strategy) as late:
                await publish(7)
                assert await ids(late, 10) == [f"p7:{n}" for n in range(1, 21, 2)]
                await ids(one, 20)
    assert len(set(first)) == 100
    for number in range(5):
        mine = [one_id for one_id in first if one_id.startswith(f"p{number}:")]
        assert mine == [f"p{number}:{n}" for n in range(1, 21)]


@pytest.mark.parametrize(("order", "strategy"), ORDERS[2:])
async def test_subscribers_of_one_pattern_get_the_same_relations(order: str, strategy: str) -> None:
    text = "Order then Payment partition by n"
    made = cluster(extra='[topics.Order]\nn = "int"\n[topics.Payment]\nn = "int"')
    async with (
        running(made),
        Bus.open(door(made)) as bus,
        bus.subscribe(text, order=order, strategy=strategy) as one,
        bus.subscribe(text, order=order, strategy=strategy, topics=KINDS) as two,
    ):
        for n in (1, 2, 3):
            await bus.publish("Order", {"n": n})
        await bus.publish(rows("Payment", 1, 3)[::-1])
        found = [[await anext(each) for _ in range(3)] for each in (one, two)]
    assert found[0] == found[1]
    assert [delivery.key for delivery in found[0]] == [(3,), (2,), (1,)]
    assert [delivery.position for delivery in found[0]] == [1, 2, 3]


async def test_every_publisher_has_times_of_its_own_where_order_is_not_by_time() -> None:
    async with Bus.open("memory:", name="a") as bus, bus.subscribe("T") as found:
        await bus.publish("T", {"n": 1}, time="2026-03-02T09:00:00Z")
        await bus.publish("T", {"n": 2})
        with pytest.raises(UsageError, match="too early"):
            await bus.publish("T", {"n": 3}, time=5)
        assert (await anext(found)).events[0].time == 1_772_442_000_000_000
    async with (
        Bus.open("memory:", strategies=ALL) as bus,
        bus.subscribe("T", order="total strict", strategy="clock"),
    ):
        with pytest.raises(UsageError, match="cannot lie in the past"):
            await bus.publish("T", {"n": 1}, time="2020-03-02T09:00:00Z")


# --- breaks ---------------------------------------------------------------------------------------


class Cutter:
    """Stands before a door and cuts every connection after some bytes, or all at once."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.cut_count = 0
        self._open: list[asyncio.StreamWriter] = []

    async def start(self) -> str:
        self.server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return f"tcp://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, other = await asyncio.open_connection("127.0.0.1", self.target)
        self._open += [writer, other]
        await asyncio.gather(self._pump(reader, other), self._pump(there, writer))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(1_000):
                writer.write(data)
                await writer.drain()
        writer.transport.abort()

    def cut(self) -> None:
        self.cut_count += 1
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()


@pytest.mark.parametrize("name", ["", "kept"])
async def test_cut_connections_lose_and_double_nothing(name: str) -> None:
    made = cluster(strategies=("sequencer",))
    cutter = Cutter(int(made.nodes["n1"].door.partition(":")[2]))
    async with running(made):
        url = await cutter.start()
        async with (
            Bus.open(url, name="p", options=QUICK) as bus,
            bus.subscribe("T", order="total strict", name=name) as found,
        ):

            async def publish() -> None:
                for n in range(60):
                    await bus.publish("T", {"n": n})
                    if n % 7 == 3:
                        cutter.cut()

            publishing = asyncio.create_task(publish())
            got = await ids(found, 40)
            cutter.cut()
            got += await ids(found, 20)
            await publishing
        cutter.server.close()
    assert got == [f"p:{n}" for n in range(1, 61)]
    assert cutter.cut_count > 8


async def test_a_node_that_comes_back_goes_on_and_an_unnamed_subscription_is_told(
    tmp_path: Path,
) -> None:
    made = cluster(data="data", strategies=("sequencer", "fifo"))
    node = Node(made, "n1", beside=tmp_path)
    await node.start()
    async with Bus.open(door(made), name="p", options=QUICK) as bus:
        kept = bus.subscribe("T", order="total strict", name="kept")
        unnamed = bus.subscribe("T", order="fifo")
        async with kept, unnamed:
            await bus.publish([{"topic": "T", "n": n} for n in range(5)])
            assert await ids(kept, 3) == ["p:1", "p:2", "p:3"]
            await node.stop()
            waiting = asyncio.create_task(bus.publish("T", {"n": 5}))
            async with running(made, tmp_path):
                async with asyncio.timeout(10):
                    assert await waiting == "p:6"
                    assert await ids(kept, 3) == ["p:4", "p:5", "p:6"]
                    with pytest.raises(UsageError, match="the node was restarted"):
                        await ids(unnamed, 6)


async def test_a_named_subscription_goes_on_where_it_stopped(tmp_path: Path) -> None:
    made = cluster(data="data", strategies=("sequencer",))
    async with running(made, tmp_path), Bus.open(door(made), name="p") as bus:
        asked: dict[str, Any] = {"order": "total strict", "name": "audit"}
        async with bus.subscribe("T", **asked) as found:
            await bus.publish(rows("T", 0, 4))
            assert await ids(found, 2) == ["p:1", "p:2"]
        await bus.publish("T", {"n": 4})
        async with bus.subscribe("T", **asked) as found:
            assert await ids(found, 3) == ["p:3", "p:4", "p:5"]
        async with bus.subscribe("T", taken=1, **asked) as found:
            assert await ids(found, 2) == ["p:2", "p:3"]
        with pytest.raises(UsageError, match="with another text or order"):
            await anext(bus.subscribe("U", **asked))
        async with bus.subscribe("T", **asked) as found:
            await found.end()
        async with bus.subscribe("T", **asked) as found:
            await bus.publish("T", {"n": 5})
            assert await ids(found, 1) == ["p:6"]


async def test_who_subscribes_under_a_name_in_use_takes_it_over_and_the_other_is_told() -> None:
    made = cluster(strategies=("fifo",))
    async with (
        running(made),
        Bus.open(door(made)) as bus,
        Bus.open(door(made)) as other,
        bus.subscribe("T", name="x") as first,
        other.subscribe("T", name="x") as second,
    ):
        with pytest.raises(PeerError, match="took the subscription over"):
            await ids(first, 1)
        await bus.publish("T", {"n": 1})
        await ids(second, 1)


async def test_two_applications_of_one_name_are_told_and_lose_nothing() -> None:
    made = cluster(strategies=("fifo",))
    async with (
        running(made),
        Bus.open(door(made), name="shop") as bus,
        Bus.open(door(made), name="shop") as other,
        bus.subscribe("T") as found,
    ):
        assert await bus.publish("T", {"n": 1}) == "shop:1"
        assert await other.publish("T", {"n": 2}) == "shop:2"
        with pytest.raises(UsageError, match="another application publishes as 'shop'"):
            await bus.publish("T", {"n": 3})
        assert await ids(found, 2) == ["shop:1", "shop:2"]


async def test_who_stops_waiting_takes_nothing_back_and_misses_nothing() -> None:
    async with Bus.open("memory:", name="p") as bus, bus.subscribe("T") as found:
        waiting = asyncio.create_task(anext(found))
        await asyncio.sleep(0)
        waiting.cancel()
        publishing = asyncio.create_task(bus.publish("T", {"n": 1}))
        for _ in range(3):
            await asyncio.sleep(0)
        publishing.cancel()
        await asyncio.gather(waiting, publishing, return_exceptions=True)
        await bus.publish("T", {"n": 2})
        async with asyncio.timeout(5):
            got = [(await anext(found)).events[0].attributes["n"]]
            if got == [1]:
                got.append((await anext(found)).events[0].attributes["n"])
        assert got in ([1, 2], [2])  # it had left already, or not


# --- slow applications ----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["sequencer", "clock"])
async def test_a_slow_subscriber_is_cut_off_told_and_counted(strategy: str) -> None:
    made = cluster(extra="[limits]\nlag_us_max = 200_000")
    async with running(made) as node, Bus.open(door(made)) as bus, Bus.open(door(made)) as other:
        asked = {"order": "total strict", "strategy": strategy}
        async with bus.subscribe("T", **asked) as slow, other.subscribe("T", **asked) as quick:
            reading = asyncio.create_task(ids(quick, 110))
            await bus.publish(rows("T", 0, 100))
            await anext(slow)
            await asyncio.sleep(0.5)
            await bus.publish(rows("T", 100, 10))
            assert len(await reading) == 110
            with pytest.raises(PeerError, match=r"a delivery waited for more than 0\.2 s"):
                await ids(slow, 110)
        assert "concordant_cut_off_total 1" in [
            f"concordant_{one.name} {one.values['']:g}"
            for one in node.metrics()
            if "" in one.values
        ]


async def test_more_deliveries_than_the_buffer_holds_cut_off() -> None:
    made = cluster(extra="[limits]\nbuffer_count_max = 100")
    async with running(made), Bus.open(door(made)) as bus, bus.subscribe("T") as slow:
        await bus.publish(rows("T", 0, 300))
        with pytest.raises(PeerError, match="more than 100 deliveries waited"):
            async with asyncio.timeout(5):
                await asyncio.sleep(0.3)
                await ids(slow, 301)


async def test_a_slow_subscriber_may_hold_the_publishers_back() -> None:
    made = cluster(extra="[limits]\nbuffer_count_max = 200\nlag_us_max = 60_000_000")
    async with (
        running(made),
        Bus.open(door(made)) as bus,
        Bus.open(door(made)) as other,
        bus.subscribe("T", slow="throttle") as slow,
    ):

        async def publish() -> int:
            for n in range(100):
                await other.publish(rows("T", 10 * n, 10))
                await asyncio.sleep(0.005)
            return 100

        publishing = asyncio.create_task(publish())
        done, _ = await asyncio.wait([publishing], timeout=1.5)
        assert not done  # held after about 100 of 1,000
        await asyncio.wait_for(bus.publish("U", {"n": 1}), 5)  # others are not held
        found = await ids(slow, 1_000)
        assert await asyncio.wait_for(publishing, 5) == 100
    assert found == [f"{other.name}:{n}" for n in range(1, 1_001)]


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"text": "T", "order": "best"}, "there is no order 'best'"),
        ({"text": "T", "order": "fifo", "strategy": "clock"}, "does not give the order 'fifo'"),
        ({"text": "T", "order": "total strict", "strategy": "clock"}, "does not offer"),
        ({"text": "Order then"}, r"1:11"),
        ({"text": "Order then Payment"}, "topic 'Order'"),
        ({"text": "x" * 70_000 + " then y"}, "at most 65,536 bytes"),
        ({"text": "T", "slow": "maybe"}, "slow='maybe'"),
        ({"text": "A then B", "topics": {"A": {"n": "number"}}}, "kinds of the topics"),
    ],
)
async def test_a_bad_subscription_is_refused_with_a_sentence(
    asked: dict[str, Any], said: str
) -> None:
    text = asked.pop("text")
    async with Bus.open("memory:") as bus:
        with pytest.raises(UsageError, match=said):
            async with bus.subscribe(text, **asked):
                pass
        await bus.publish("T", {"n": 1})


@pytest.mark.parametrize(
    ("event", "said"),
    [
        ({"n": 1}, "needs a topic"),
        ({"topic": 7}, "needs a topic"),
        ({"topic": "T", "seq": 5}, "'seq' is given by the bus"),
        ({"topic": "T", "n": 2**63}, "cannot be 9223372036854775808"),
        ({"topic": "T", "n": [1]}, r"cannot be \[1\]"),
        ({"topic": "T", "time": "soon"}, "soon"),
        ({"topic": "T", "time": -5}, "no time"),
        ({"topic": "T", "id": 5}, "no text"),
    ],
)
async def test_a_bad_event_is_refused_and_none_of_its_batch_is_published(
    event: dict[str, Any], said: str
) -> None:
    async with Bus.open("memory:", name="p") as bus, bus.subscribe("T") as found:
        with pytest.raises(UsageError, match=said):
            await bus.publish([{"topic": "T", "n": 1}, event])
        assert await bus.publish("T", {"n": 2}) == "p:1"
        assert await ids(found, 1) == ["p:1"]


async def test_batches_after_a_refused_one_are_published_all_the_same() -> None:
    async with Bus.open("memory:", name="p") as bus, bus.subscribe("T") as found:
        await bus.publish("T", {"n": 0}, time=10**15)
        results = await asyncio.gather(
            bus.publish("T", {"n": 1}),
            bus.publish("T", {"n": 2}, time=5),
            bus.publish("T", {"n": 3}),
            bus.publish([{"topic": "T", "n": n} for n in range(4, 10)]),
            return_exceptions=True,
        )
        assert [isinstance(one, UsageError) for one in results] == [False, True, False, False]
        assert await ids(found, 9) == [f"p:{n}" for n in range(1, 10)]


async def test_too_large_batches_are_refused() -> None:
    made = cluster(extra="[limits]\nbatch_count_max = 10")
    async with running(made), Bus.open(door(made)) as bus:
        with pytest.raises(UsageError, match="at most 10 at once"):
            await bus.publish(rows("T", 0, 11))
        await bus.publish(rows("T", 0, 10))


async def test_who_may_not_come_in_is_told() -> None:
    made = cluster(extra='[credentials]\napplications = "secret"')
    async with running(made) as node:
        with pytest.raises(UsageError, match="does not show the credentials"):
            async with Bus.open(door(made), token="guess"):
                pass
        async with Bus.open(door(made), token="secret") as bus:
            await bus.publish("T", {"n": 1})
        assert "does not show the credentials" in str(node.metrics())


async def test_nobody_at_the_door_is_an_error_with_advice() -> None:
    (port,) = free_ports(1)
    with pytest.raises(UsageError, match="nobody answers at") as caught:
        async with Bus.open(f"tcp://127.0.0.1:{port}", options=CallerOptions(connect_s=0.2)):
            pass
    assert "concordant node" in caught.value.hint


@pytest.mark.parametrize("url", ["", "memory", "tcp:", "tcp://here", "ftp://x:1", "tcp://x:99999"])
def test_a_bad_url_is_refused(url: str) -> None:
    with pytest.raises(UsageError, match="no address"):
        Bus.open(url)


async def test_what_is_no_session_is_refused_and_counted() -> None:
    made = cluster()
    host, _, port = made.nodes["n1"].door.partition(":")
    async with running(made) as node, Bus.open(door(made)) as bus:
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x00\x00\x00\x03abc", b"\x00\x00"):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(data)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
        await bus.publish("T", {"n": 1})
        (refused,) = [one for one in node.metrics() if one.name == "refused_sessions_total"]
        assert sum(refused.values.values()) == 3


# --- without an event loop ------------------------------------------------------------------------


def test_the_blocking_bus_does_the_same() -> None:
    with Bus.blocking("memory:", name="p") as bus:
        with bus.subscribe("T", order="total strict") as found:
            assert bus.publish(rows("T", 0, 3)) == "p:3"
            assert [found.next().events[0].id for _ in range(3)] == ["p:1", "p:2", "p:3"]
            with pytest.raises(TimeoutError):
                found.next(timeout_s=0.05)
            bus.publish("T", {"n": 3})
            assert next(iter(found)).events[0].id == "p:4"
            assert found.taken == 3
        with pytest.raises(UsageError, match="no order"):
            bus.subscribe("T", order="best")
    with pytest.raises(ConcordantError), Bus.blocking("nowhere"):
        pass


def test_importing_the_name_starts_nothing() -> None:
    code = "import concordant, sys; assert 'asyncio' not in sys.modules; concordant.Bus"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- logs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["sequencer", "clock", "sequencing-strict"])
async def test_logs_stay_short_and_everything_goes_on_after_a_restart(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("concordant.net.host.GROWN_BYTES_MIN", 4_000)
    made = cluster(
        data="data",
        strategies=(strategy, "fifo"),
        extra='[parameters]\nkept_count_max = 20\n[topics.T]\nn = "int"',
    )
    plain = {"order": "total strict", "strategy": strategy, "name": "plain"}
    pairs = {**plain, "name": "pairs"}
    pattern = "T then T[2]"
    got: list[str] = []
    found: list[tuple[str, ...]] = []
    for life in range(3):
        async with (
            running(made, tmp_path),
            Bus.open(door(made), name="p", options=QUICK) as bus,
            bus.subscribe("T", **plain) as all_of_it,
            bus.subscribe(pattern, **pairs) as in_pairs,
        ):
            for n in range(8):
                await bus.publish(rows("T", 100 * life + 25 * n, 25))
                got += await ids(all_of_it, 25)
                await asyncio.sleep(0.06)  # the node looks at its logs now and then
            for _ in range(100 - life * 3):  # some wait for the next life
                found.append(tuple(one.id for one in (await anext(in_pairs)).events))
    assert got == [f"p:{n}" for n in range(1, 601)]
    assert found == [(f"p:{n}", f"p:{n + 1}") for n in range(1, 2 * len(found), 2)]
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.log"))
    assert size < 120_000  # without snapshots it is more than 250,000
    async with running(made, tmp_path), Bus.open(door(made)) as bus:
        with pytest.raises(UsageError, match="what is kept begins after"):
            await anext(bus.subscribe("T", taken=1, **plain))
        async with bus.subscribe("T", **plain) as again:
            await bus.publish("T", {"n": 1})
            assert (await ids(again, 1))[0].endswith(":1")


async def test_publishers_with_drawn_names_are_forgotten_and_the_number_of_others_is_bounded() -> (
    None
):
    made = cluster(
        strategies=("fifo", "sequencer"),
        extra="[limits]\npublishers_max = 3\nlag_us_max = 100_000",
    )
    async with running(made):
        for _ in range(3):
            async with Bus.open(door(made)) as bus:
                await bus.publish("T", {"n": 1})
        await asyncio.sleep(0.3)
        for n in range(3):
            async with Bus.open(door(made), name=f"p{n}") as bus:
                assert await bus.publish("T", {"n": 1}) == f"p{n}:1"
        with pytest.raises(UsageError, match="3 publishers are known here"):
            async with Bus.open(door(made)) as bus:
                await bus.publish("T", {"n": 1})
        async with Bus.open(door(made), name="p2") as bus:
            assert await bus.publish("T", {"n": 2}) == "p2:2"


async def test_a_node_whose_disk_fails_says_so_and_stores_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = cluster(data="data", strategies=("fifo",))
    async with running(made, tmp_path) as node, Bus.open(door(made), options=QUICK) as bus:
        await bus.publish("T", {"n": 1})

        def full(file: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("concordant.net.log.os.fdatasync", full)
        publishing = asyncio.create_task(bus.publish("T", {"n": 2}))
        async with asyncio.timeout(10):
            await node.failed.wait()
        assert "No space left" in str(node.failure)
        assert not node.health()["ok"]
        assert not publishing.done()
        publishing.cancel()
        monkeypatch.undo()
