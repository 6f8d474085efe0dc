"""What a carrier does for a node that is away: it keeps a bounded part, and counts the rest."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from concordant.net import carrier
from concordant.net.carrier import MeshCarrier
from concordant.net.link import Identity
from concordant.order.streams import Gone
from concordant.wire.messages import Codec


class Away:
    """Links to a node that is away: a few bytes fit, and there is never room for more."""

    me = Identity("c", "a", "1")
    peers = ("b",)
    connected = ()

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send_now(self, to: str, payload: bytes) -> bool:
        assert to == "b"
        self.sent.append(payload)
        return len(self.sent) == 1

    async def send(self, to: str, payload: bytes) -> None:
        await asyncio.Event().wait()

    async def receive(self) -> Any:
        await asyncio.Event().wait()


def message(length: int) -> tuple[Gone, ...]:
    return (Gone(("p", "x" * length), 1),)


async def test_what_waits_for_a_node_is_bounded_by_its_length(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(carrier, "WAITING_BYTES_MAX", 10_000)
    found = MeshCarrier(Away(), Codec((Gone,)))  # type: ignore[arg-type]
    for _ in range(20):
        found.send("a/p", "b/q", message(1_000))
    waiting = found._waiting["b"]
    assert 8 <= len(waiting) <= 10
    assert sum(map(len, waiting)) == found._waiting_bytes["b"] <= 10_000
    assert found.dropped_count == 20 - 1 - len(waiting)
    await found.stop()


async def test_what_no_link_takes_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(carrier, "PAYLOAD_BYTES_MAX", 500)
    links = Away()
    found = MeshCarrier(links, Codec((Gone,)))  # type: ignore[arg-type]
    found.send("a/p", "b/q", message(1_000))
    assert found.dropped_count == 1 and not links.sent
    await found.stop()


async def test_places_of_one_node_share_a_parcel() -> None:
    links = Away()
    found = MeshCarrier(links, Codec((Gone,)))  # type: ignore[arg-type]
    found.send_all("a/p", ("b/q", "b/r", "b/s"), message(10))
    (parcel,) = links.sent
    assert all(place in parcel for place in (b"b/q", b"b/r", b"b/s"))
    await found.stop()
