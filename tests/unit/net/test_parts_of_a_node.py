"""Outlets, flows, registers, the metrics page: the small parts of a node, one by one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Delivery, Disseminate
from concordant.machine.inputs import Command, Received, Started, TimerFired
from concordant.model.event import Event
from concordant.net.flow import Flow, FlowOptions, Held, Hold
from concordant.net.given import given_of
from concordant.net.outlet import FRAME_COUNT_MAX, UNDER_WAY_COUNT_MAX, Outlet
from concordant.net.register import Register
from concordant.net.session import (
    FRAME_BYTES_MAX,
    Alive,
    MemoryChannel,
    StreamChannel,
    Subscribes,
)
from concordant.net.status import Metric, Status, exposition


def deliveries(first: int, count: int) -> list[Delivery]:
    return [Delivery((Event("T", "p", n, n),), n) for n in range(first, first + count)]


# --- outlets --------------------------------------------------------------------------------------


def outlet(**bounds: int) -> Outlet:
    return Outlet(**{"taken": 0, "buffer_count_max": 100, "lag_us_max": 1_000, **bounds})


def test_what_was_not_taken_is_sent_again_on_a_new_channel() -> None:
    out = outlet()
    out.add(deliveries(1, 5), now=0)
    assert out.due() == (1, deliveries(1, 5))
    assert out.took(2)
    assert not out.took(2)
    out.again(3)
    assert out.due() == (4, deliveries(4, 2))
    with pytest.raises(PeerError, match="were taken"):
        out.took(6)
    for taken in (2, 6):
        with pytest.raises(PeerError, match="what is kept begins after 3"):
            out.again(taken)


def test_few_deliveries_are_under_way_at_a_time() -> None:
    out = outlet(buffer_count_max=100_000)
    out.add(deliveries(1, UNDER_WAY_COUNT_MAX + 500), now=0)
    sent = 0
    while found := out.due()[1]:
        assert len(found) <= FRAME_COUNT_MAX
        sent += len(found)
    assert sent == UNDER_WAY_COUNT_MAX
    out.took(200)
    assert len(out.due()[1]) == 200


def test_an_outlet_knows_when_it_is_full_or_late() -> None:
    out = outlet(buffer_count_max=10)
    out.add(deliveries(1, 5), now=0)
    assert (out.half_full, out.full, out.late(1_000), out.late(1_001)) == (
        False,
        False,
        False,
        True,
    )
    out.add(deliveries(6, 6), now=500)
    assert (out.half_full, out.full) == (True, True)
    out.due()
    out.took(5)
    assert not out.late(1_500)
    assert out.lag_us(1_500) == 1_000


# --- flows ----------------------------------------------------------------------------------------


def test_a_held_topic_is_told_repeated_and_let_go() -> None:
    mine, other = Flow(), Flow()
    for flow in (mine, other):
        flow.handle(0, Started())
    (said, _) = mine.handle(10, Command((Hold(("T",)),)))
    assert said == Disseminate("flow", (Held(("T",)),))
    other.handle(20, Received("n1/flow", (Held(("T",)),)))
    assert other.holds("T")
    assert not other.holds("U")
    assert mine.handle(30, Command((Hold(("T",)),))) == []
    assert said in mine.handle(210_010, TimerFired(("repeat",)))
    other.handle(30, Received("n1/flow", (Held(()),)))
    assert not other.holds("T")


def test_a_node_that_died_holds_nobody_back_for_ever() -> None:
    flow = Flow(FlowOptions(lease_us=100))
    flow.handle(0, Started())
    flow.handle(20, Received("n1/flow", (Held(("T",)),)))
    flow.handle(60, Received("n2/flow", (Held(("U",)),)))
    flow.handle(121, TimerFired(("expire",)))
    assert (flow.holds("T"), flow.holds("U")) == (False, True)
    restored = Flow()
    restored.restore(flow.snapshot())
    assert restored.holds("U")


def test_a_flow_refuses_what_it_does_not_know() -> None:
    flow = Flow()
    with pytest.raises(PeerError):
        flow.handle(0, Received("n1", (Alive(),)))
    with pytest.raises(UsageError):
        flow.handle(0, Command((Alive(),)))


# --- the register ---------------------------------------------------------------------------------


async def test_named_subscriptions_are_there_after_a_restart(tmp_path: Path) -> None:
    register = Register(tmp_path / "register")
    for name in ("a", "b"):
        await register.add(Subscribes(1, "T", "fifo", name=name))
    for count in range(1, 3_000):  # its log does not grow with what is taken
        register.took("a", count)
        if count % 100 == 0:
            await asyncio.sleep(0)
    await register.remove("b")
    await register.stop()
    again = Register(tmp_path / "register")
    assert [(asked.name, taken) for asked, taken in again.subscriptions()] == [("a", 2_999)]
    assert again._log.count < 1_500
    await again.stop()


# --- channels -------------------------------------------------------------------------------------


class Bytes:
    """A stream that holds some bytes, and takes any."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    async def readexactly(self, n: int) -> bytes:
        found, self.data = self.data[:n], self.data[n:]
        if len(found) < n:
            raise asyncio.IncompleteReadError(found, n)
        return found

    def write(self, data: bytes) -> None:
        self.data += data

    async def drain(self) -> None:
        pass

    def close(self) -> None:
        pass


async def test_frames_of_strangers_are_bounded_and_refused() -> None:
    for data, said in (
        ((FRAME_BYTES_MAX + 1).to_bytes(4, "big"), "a frame of"),
        (b"\x00\x00\x00\x02\x91\xc0", "cannot be read"),
        (b"\x00\x00\x00\x01\x91", "cannot be read"),
    ):
        channel = StreamChannel(Bytes(data), Bytes(), side="node")
        with pytest.raises(PeerError, match=said):
            await channel.receive()
    stream = Bytes()
    channel = StreamChannel(stream, stream, side="node")
    channel.send(Alive())
    assert await channel.receive() == Alive()
    with pytest.raises(UsageError, match="too many"):
        channel.send(Subscribes(1, "x" * FRAME_BYTES_MAX, "fifo"))


async def test_a_closed_channel_in_memory_stays_closed() -> None:
    one, other = MemoryChannel.pair()
    one.send(Alive())
    assert await other.receive() == Alive()
    other.close()
    for _ in range(2):
        with pytest.raises(EOFError):
            await one.receive()
    with pytest.raises(EOFError):
        one.send(Alive())
    await one.drain()


# --- what is published ----------------------------------------------------------------------------


def test_attributes_that_nest_too_deep_are_refused() -> None:
    row: dict[str, object] = {"n": 1}
    for _ in range(30):
        row = {"a": row}
    with pytest.raises(UsageError, match="deeper"):
        given_of({"topic": "T", **row})
    with pytest.raises(UsageError, match="is a text"):
        given_of({"topic": "T", 5: 1})  # type: ignore[dict-item]


# --- health and metrics ---------------------------------------------------------------------------


async def fetched(port: int, request: bytes) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 5)
    writer.close()
    return answer.decode()


async def test_health_and_metrics_over_http() -> None:
    health = {"ok": True}
    metric = Metric("cut_off_total", "Cut.", {'reason="a"': 2}, counted=True)
    status = Status(lambda: health, lambda: [metric])
    port = await status.start("127.0.0.1", 0)
    assert (await fetched(port, b"GET /health HTTP/1.1\r\n\r\n")).endswith('{"ok":true}\n')
    metrics = await fetched(port, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert metrics.endswith(exposition([metric]))
    assert 'concordant_cut_off_total{reason="a"} 2' in metrics
    health["ok"] = False
    assert "503" in await fetched(port, b"GET /health HTTP/1.1\r\n\r\n")
    assert "404" in await fetched(port, b"GET / HTTP/1.1\r\n\r\n")
    assert "405" in await fetched(port, b"POST /health HTTP/1.1\r\n\r\n")
    assert await fetched(port, b"x" * 20_000) == ""
    with pytest.raises(UsageError, match="cannot listen"):
        await Status(lambda: health, list).start("127.0.0.1", port)
    await status.stop()
