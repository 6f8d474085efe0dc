"""Plain NATS programs publish and subscribe through a gateway; they know nothing of Concordant."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import nats
import pytest

from concordant.errors import UsageError
from concordant.machine.effects import Delivery
from concordant.net.cluster import cluster_from
from concordant.net.gateway import Gateway
from concordant.net.node import Node
from tests.network.nats_process import NatsProcess

PLAIN = Path(__file__).with_name("plain_program.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsProcess]:
    made = NatsProcess(tmp_path_factory.mktemp("nats"), "-js")
    yield made
    made.stop()


CLUSTER = """
[cluster]
name = "c"
strategies = ["sequencer"]
{data}
[nodes.n]
door = "127.0.0.1:1"
[nats]
servers = ["{url}"]
[gateway]
{options}
"""


@contextlib.asynccontextmanager
async def gateway(
    server: NatsProcess, prefix: str, *, data: Path | None = None, **others: Any
) -> AsyncIterator[Gateway]:
    """A node in this process with a gateway; `prefix` keeps tests apart on one server."""
    options = {
        "topics": ("Order", "Payment", "shop.Refund"),
        "takes": f"{prefix}.in",
        "gives": f"{prefix}.out",
        **others,
    }
    text = CLUSTER.format(
        data=f'data = "{data}"' if data else "",
        url=server.url,
        options="\n".join(f"{key} = {json.dumps(value)}" for key, value in options.items()),
    )
    node = Node(cluster_from(text), "n", place="cluster.toml")
    try:
        await node.start(door=False)
        async with asyncio.timeout(10):
            await node._gateway.begun.wait()
        yield node._gateway.gateway
        assert node.failure is None
        names = {metric.name for metric in node.metrics()}
        assert {"gateway_taken_total", "gateway_given_total", "gateway_refused_total"} <= names
    finally:
        await node.stop()


@contextlib.asynccontextmanager
async def plain(server: NatsProcess) -> AsyncIterator[Any]:
    client = await nats.connect(server.url)
    try:
        yield client
    finally:
        await client.close()


async def asked(client: Any, subject: str, body: Any, **headers: str) -> dict[str, Any]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await client.request(subject, data, timeout=10, headers=named or None)
    found: dict[str, Any] = json.loads(answer.data)
    return found


async def read(subscription: Any, count: int) -> list[dict[str, Any]]:
    return [json.loads((await subscription.next_msg(timeout=10)).data) for _ in range(count)]


async def test_programs_that_know_only_nats_publish_and_read_one_order(
    server: NatsProcess,
) -> None:
    """Two publishers and two subscribers as processes; none of them imports concordant."""
    async with gateway(server, "programs") as made:
        readers = [
            subprocess.Popen(
                [sys.executable, str(PLAIN), "read", server.url, "programs.out.>", "400"],
                stdout=subprocess.PIPE,
            )
            for _ in range(2)
        ]
        for reader in readers:
            assert reader.stdout is not None
            assert await asyncio.to_thread(reader.stdout.readline) == b"ready\n"
        writers = [
            subprocess.Popen(
                [sys.executable, str(PLAIN), "write", server.url, "programs.in", name, "200"]
            )
            for name in ("one", "two")
        ]
        for writer in writers:
            assert await asyncio.to_thread(writer.wait, 60) == 0
        outs = [(await asyncio.to_thread(reader.communicate, None, 60))[0] for reader in readers]
        assert outs[0] == outs[1]
        rows = [json.loads(line) for line in outs[0].splitlines()]
        assert [row["position"] for row in rows] == list(range(1, 401))
        for name in ("one", "two"):
            mine = [r["attributes"]["n"] for r in rows if r["attributes"]["origin.source"] == name]
            assert mine == list(range(200))
        assert made.taken_count == made.given_count == 400
        assert not made.refused


async def test_a_gap_shows_in_the_next_message_of_its_topics(server: NatsProcess) -> None:
    async with gateway(server, "gap") as made, plain(server) as client:
        out = await client.subscribe("gap.out.>")
        await client.flush()
        reading = made._reading
        assert reading is not None
        gaps = [Delivery((), 99, False, "gap", key=("Order",))]
        following = reading.next

        async def next_one() -> Delivery:
            return gaps.pop() if gaps else await following()

        reading.next = next_one  # type: ignore[method-assign]
        previous = []
        for topic in ("Order", "Payment", "Order", "Payment"):
            await asked(client, f"gap.in.{topic}", {"n": 1})
            previous += [row["previous"] for row in await read(out, 1)]
        assert previous == [None, None, 99, 2]


async def test_every_format_comes_in_and_the_origin_is_kept(server: NatsProcess) -> None:
    async with gateway(server, "formats"), plain(server) as client:
        out = await client.subscribe("formats.out.>")
        await client.flush()
        good = [
            await asked(client, "formats.in.Order", {"n": 1, "to": {"city": "Bonn"}, "time": 5}),
            await asked(
                client,
                "formats.in.Payment",
                msgspec.msgpack.encode([{"n": 2}, {"n": 3}]),
                content_type="application/msgpack",
            ),
            await asked(
                client,
                "formats.in.any",
                {
                    "specversion": "1.0",
                    "type": "shop.Refund",
                    "source": "/till/7",
                    "id": "a-1",
                    "time": "2026-01-01T00:00:00Z",
                    "data": {"n": 4},
                },
                content_type="application/cloudevents+json",
            ),
            await asked(
                client,
                "formats.in.any",
                {"n": 5},
                ce_specversion="1.0",
                ce_type="Order",
                ce_source="/till/8%20b",
                ce_id="b",
                content_type="application/json; charset=utf-8",
            ),
        ]
        assert good == [
            {"ok": True, "ids": ["gateway:1"]},
            {"ok": True, "ids": ["gateway:2", "gateway:3"]},
            {"ok": True, "ids": ["gateway:4"]},
            {"ok": True, "ids": ["gateway:5"]},
        ]
        rows = await read(out, 5)
        assert [row["attributes"]["n"] for row in rows] == [1, 2, 3, 4, 5]
        assert [row["topic"] for row in rows] == [
            *("Order", "Payment", "Payment", "shop.Refund", "Order")
        ]
        assert [row["previous"] for row in rows] == [None, None, 2, None, 1]
        assert rows[0]["attributes"] == {"n": 1, "to.city": "Bonn", "origin.time": 5}
        assert rows[3]["attributes"] == {
            "n": 4,
            "origin.source": "/till/7",
            "origin.id": "a-1",
            "origin.time": "2026-01-01T00:00:00Z",
        }
        assert rows[4]["attributes"]["origin.source"] == "/till/8 b"
        assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)


async def test_a_topic_is_a_subject_of_its_own_and_cloudevents_go_out(
    server: NatsProcess,
) -> None:
    async with gateway(server, "clouds", format="cloudevents"), plain(server) as client:
        out = await client.subscribe("clouds.out.shop.Refund")
        await client.flush()
        await asked(client, "clouds.in.Order", {"n": 1})
        await asked(client, "clouds.in.shop.Refund", {"n": 2, "source": "till", "id": "r1"})
        (row,) = await read(out, 1)
        time = row.pop("time")
        assert time.endswith("Z")
        assert row == {
            "specversion": "1.0",
            "type": "shop.Refund",
            "source": "till",
            "id": "r1",
            "sequence": "00000000000000000002",
            "inorder": True,
            "datacontenttype": "application/json",
            "data": {"n": 2},
        }


@pytest.mark.parametrize(
    ("body", "headers", "reason"),
    [
        (b"no json", {}, "format"),
        (b"\xff\xfe", {}, "format"),
        (b"7", {}, "format"),
        (b"[]", {}, "empty"),
        (b"[{}, 7]", {}, "format"),
        (b"[" * 100_000, {}, "format"),
        (b'{"a": ' * 20 + b"1" + b"}" * 20, {}, "attribute"),
        (b"\xc1", {"content_type": "application/msgpack"}, "format"),
        (b"\x81\x01\x02", {"content_type": "application/msgpack"}, "attribute"),
        (b"{}", {"content_type": "text/plain"}, "format"),
        (b'{"n": [1]}', {}, "attribute"),
        (b'{"n": 9223372036854775808}', {}, "attribute"),
        (b'{"origin": 1}', {}, "attribute"),
        (b'{"origin.x": 1}', {}, "attribute"),
        (b'{"position": 1}', {}, "attribute"),
        (b'{"topic": "Other"}', {}, "topic"),
        (b"{}", {"content_type": "application/cloudevents+json"}, "cloudevent"),
        (b"{}", {"ce_type": "Order", "ce_specversion": "0.3"}, "cloudevent"),
        (b"{}", {"ce_type": "Order", "ce_specversion": "1.0", "ce_id": "1"}, "cloudevent"),
        (
            b"7",
            {"ce_type": "A", "ce_specversion": "1.0", "ce_id": "1", "ce_source": "s"},
            "cloudevent",
        ),
        (json.dumps([{}] * 11).encode(), {}, "count"),
        (b'{"a": "%s"}' % (b"x" * 300_000), {}, "length"),
    ],
)
async def test_what_is_no_event_is_answered_with_a_counted_reason(
    server: NatsProcess, body: bytes, headers: dict[str, str], reason: str
) -> None:
    bounds = {"events_count_max": 10, "body_bytes_max": 200_000}
    async with gateway(server, "bad", **bounds) as made, plain(server) as client:
        answer = await asked(client, "bad.in.Order", body, **headers)
        assert (answer["ok"], answer["reason"]) == (False, reason)
        assert len(answer["message"]) <= 500
        await client.publish("bad.in.Order", b"no json")  # and nobody to be answered
        assert (await asked(client, "bad.in.Order", {"n": 1}))["ok"]
        assert made.refused["format"] >= 1
        assert made.refused[reason] >= 1
        assert made.failure is None


async def test_what_is_repeated_under_one_id_is_stored_once(server: NatsProcess) -> None:
    async with gateway(server, "twice", remembered_count_max=2) as made, plain(server) as client:
        event = {"source": "till", "id": "7", "n": 1}
        first = await asked(client, "twice.in.Order", event)
        assert await asked(client, "twice.in.Order", event) == first
        assert await asked(client, "twice.in.Order", [event, {"id": "8"}, {"id": "8"}]) == {
            "ok": True,
            "ids": ["gateway:1", "gateway:2", "gateway:2"],
        }
        assert made.repeated_count == 3
        await asked(client, "twice.in.Order", {"id": "9"})  # only two are remembered
        assert await asked(client, "twice.in.Order", event) == {"ok": True, "ids": ["gateway:4"]}


async def test_more_than_can_be_stored_is_refused_as_busy(server: NatsProcess) -> None:
    async with gateway(server, "busy", waiting_count_max=3) as made, plain(server) as client:
        answers = await asyncio.gather(
            *(asked(client, "busy.in.Order", [{"n": 1}] * 2) for _ in range(50))
        )
        assert {one.get("reason") for one in answers if not one["ok"]} == {"busy"}
        stored = sum(one["ok"] for one in answers)
        assert 0 < stored < 50
        assert made.taken_count == 2 * stored


async def test_a_gateway_that_comes_back_goes_on_and_jetstream_has_each_position_once(
    server: NatsProcess, tmp_path: Path
) -> None:
    others = {"durable": True, "data": tmp_path}
    async with plain(server) as client:
        async with gateway(server, "back", **others):
            for n in range(20):
                await asked(client, "back.in.Order", {"n": n})
        async with gateway(server, "back", **others):
            for n in range(20, 40):
                await asked(client, "back.in.Order", {"n": n})
            stream = client.jetstream()
            kept = await stream.pull_subscribe("back.out.>", "late", stream="back%2Eout")
            rows: list[dict[str, Any]] = []
            async with asyncio.timeout(10):
                while len(rows) < 40:
                    with contextlib.suppress(TimeoutError):
                        rows += [json.loads(one.data) for one in await kept.fetch(40, timeout=1)]
        assert [row["position"] for row in rows] == list(range(1, 41))
        assert [row["attributes"]["n"] for row in rows] == list(range(40))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"takes": "a", "gives": "a.b"}, "would come in again"),
        ({"takes": "a b"}, "is no prefix"),
        ({"gives": "a..b"}, "is no prefix"),
        ({"topics": ()}, "needs the names of the topics"),
        ({"topics": ("two words",)}, "needs the names of the topics"),
        ({"format": "xml"}, r"\[gateway\]"),
        ({"colour": 1}, r"\[gateway\]"),
        ({"node": "m"}, "no such node"),
    ],
)
async def test_a_gateway_that_cannot_be_is_refused(
    server: NatsProcess, change: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(UsageError, match=sentence):
        async with gateway(server, "never", **change):
            pass
