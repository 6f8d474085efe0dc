"""A link without its socket: whatever connections do, payloads arrive once, in order, bounded."""

from __future__ import annotations

import contextlib
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concordant.errors import PeerError
from concordant.net.link import (
    VERSION,
    Alive,
    Bye,
    Hello,
    Identity,
    Items,
    Link,
    Taken,
    decode_frame,
    encode_frame,
)


def me(node: str, life: str = "1", **more: object) -> Identity:
    return msgspec.structs.replace(Identity("c", node, life), **more)


class Wire:
    """Two links and a connection between them that breaks at any frame, losing what is on it."""

    def __init__(self, rng: Random, window_bytes: int) -> None:
        self.rng = rng
        self.links = [Link(me(n, window_bytes=window_bytes)) for n in "ab"]
        self.under_way: list[list[object]] = [[], []]
        """Frames on the way to each side."""
        self.sent: list[list[bytes]] = [[], []]
        self.got: list[list[bytes]] = [[], []]
        self.untaken = [0, 0]
        self.connected = False

    def connect(self) -> None:
        for side, link in enumerate(self.links):
            self.under_way[1 - side] = [link.connected()]
        self.connected = True

    def cut(self) -> None:
        """Some frames arrive before it breaks, the others never."""
        for side in (0, 1):
            for _ in range(self.rng.randint(0, len(self.under_way[side]))):
                self.arrive(side)
            self.under_way[side] = []
        for link in self.links:
            link.disconnected()
        self.connected = False

    def arrive(self, side: int) -> None:
        frame = self.under_way[side].pop(0)
        assert isinstance(frame, Hello | Items | Taken)
        fresh = self.links[side].receive(decode_frame(encode_frame(frame)[4:]))
        self.got[side] += fresh
        self.untaken[side] += len(fresh)

    def act(self) -> None:
        side = self.rng.randint(0, 1)
        link = self.links[side]
        match self.rng.choice(["send", "send", "go", "arrive", "arrive", "take", "cut"]):
            case "send":
                payload = bytes([side]) * self.rng.randint(0, 30) + b"%d" % len(self.sent[side])
                if link.send(payload):
                    self.sent[side].append(payload)
            case "go":
                self.under_way[1 - side] += link.due()
            case "arrive" if self.under_way[side]:
                self.arrive(side)
            case "take" if self.untaken[side] and link.is_open:
                count = self.rng.randint(1, self.untaken[side])
                self.untaken[side] -= count
                self.under_way[1 - side].append(link.took(count))
            case "cut" if self.rng.random() < 0.1:
                self.cut()
                self.connect()

    def settle(self) -> None:
        for _ in range(10_000):
            for side, link in enumerate(self.links):
                self.under_way[1 - side] += link.due()
                while self.under_way[side]:
                    self.arrive(side)
                if self.untaken[side]:
                    self.under_way[1 - side].append(link.took(self.untaken[side]))
                    self.untaken[side] = 0
            if not any(self.under_way) and not any(link.pending_count for link in self.links):
                return
        raise AssertionError("the link never came to rest")


@given(st.integers(0, 2**32), st.sampled_from([1, 40, 1_000]))
@settings(max_examples=250, deadline=None)
def test_payloads_arrive_once_and_in_order_whatever_breaks(seed: int, window_bytes: int) -> None:
    wire = Wire(Random(seed), window_bytes)
    wire.connect()
    for _ in range(300):
        wire.act()
        for side in (0, 1):
            assert wire.got[1 - side] == wire.sent[side][: len(wire.got[1 - side])]
    wire.settle()
    assert [wire.got[1], wire.got[0]] == wire.sent


def open_pair(**more: object) -> tuple[Link, Link]:
    one, other = Link(me("a", **more)), Link(me("b", **more))
    hello, answer = one.connected(), other.connected()
    one.receive(answer)
    other.receive(hello)
    return one, other


def test_no_more_is_under_way_than_the_receiver_grants() -> None:
    one, other = open_pair(window_bytes=100)
    for _ in range(10):
        assert one.send(bytes(40))
    (items,) = one.due()
    assert len(items.payloads) == 2
    assert one.due() == []
    other.receive(items)
    one.receive(other.took(1))
    assert [len(frame.payloads) for frame in one.due()] == [1]


def test_a_payload_larger_than_the_window_still_goes() -> None:
    one, _ = open_pair(window_bytes=10)
    one.send(bytes(1_000))
    assert len(one.due()) == 1


def test_what_waits_is_bounded_and_the_sender_is_told() -> None:
    link = Link(me("a"), waiting_bytes_max=100)
    assert link.send(bytes(60)) and link.send(bytes(40))
    assert not link.send(b"x")
    assert link.pending_count == 2


def test_a_restarted_peer_gets_what_its_former_life_had_not_taken() -> None:
    one, other = open_pair()
    for number in range(5):
        one.send(b"%d" % number)
    (items,) = one.due()
    other.receive(items)
    one.receive(other.took(2))
    one.disconnected()
    reborn = Link(me("b", "2"))
    hello, answer = one.connected(), reborn.connected()
    one.receive(answer)
    reborn.receive(hello)
    assert reborn.receive(one.due()[0]) == [b"2", b"3", b"4"]


def test_a_restarted_peer_whose_first_greeting_was_lost_is_understood() -> None:
    """It knows us from our greeting, we do not know it: its counts are those of its new life."""
    one, other = open_pair()
    one.send(b"taken")
    other.receive(one.due()[0])
    one.receive(other.took(1))
    one.send(b"not taken")
    one.disconnected()
    reborn = Link(me("b", "2"))
    hello, _lost = one.connected(), reborn.connected()
    reborn.receive(hello)
    for link in (one, reborn):
        link.disconnected()
    hello, answer = one.connected(), reborn.connected()
    one.receive(answer)
    reborn.receive(hello)
    assert reborn.receive(one.due()[0]) == [b"not taken"]


def test_a_restarted_sender_begins_anew() -> None:
    one, other = open_pair()
    one.send(b"old")
    other.receive(one.due()[0])
    other.disconnected()
    reborn = Link(me("a", "2"))
    hello, answer = reborn.connected(), other.connected()
    reborn.receive(answer)
    other.receive(hello)
    reborn.send(b"new")
    assert other.receive(reborn.due()[0]) == [b"new"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"version": 9}, "version 9 of the protocol, and this is version 3"),
        ({"cluster": "other"}, "it belongs to the cluster 'other'"),
        ({"token": "guess"}, "does not know the cluster's token"),
        ({"node": "a"}, "it has the name of this node"),
        ({"window_bytes": 0}, "impossible numbers"),
        ({"peer_life": "1", "received": 7}, "counts what was never sent"),
    ],
)
def test_a_greeting_that_does_not_fit_is_refused(change: dict[str, object], sentence: str) -> None:
    link = Link(me("a"))
    link.connected()
    with pytest.raises(PeerError, match=sentence):
        link.receive(msgspec.structs.replace(Hello(VERSION, "c", "b", "1"), **change))
    assert not link.is_open
    link.receive(Hello(VERSION, "c", "b", "1"))
    assert link.is_open


def test_frames_against_the_rules_are_refused_and_change_nothing() -> None:
    one, _other = open_pair()
    one.send(b"x")
    one.due()
    for frame, sentence in (
        (Taken(2), "took what was never sent"),
        (Items(3, [b"y"]), "number 3 came where 1 was due"),
        (Hello(VERSION, "c", "b", "1"), "a second greeting"),
        (Bye("maintenance"), "ended the link: maintenance"),
    ):
        with pytest.raises(PeerError, match=sentence):
            one.receive(frame)
    assert one.receive(Alive()) == []
    assert one.receive(Items(1, [b"y"])) == [b"y"]
    assert one.pending_count == 1
    with pytest.raises(PeerError, match="before a greeting"):
        Link(me("z")).receive(Alive())


@given(st.binary(max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    with contextlib.suppress(PeerError):
        decode_frame(data)
