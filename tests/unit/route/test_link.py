"""Links: what is lost is repeated, what comes twice or too early is not handed on."""

from __future__ import annotations

from typing import Any

import pytest

from concordant.errors import PeerError
from concordant.machine.effects import Persist, Send
from concordant.machine.inputs import Command, Received, Started, TimerFired
from concordant.route.broker import Broker
from concordant.route.client import Client
from concordant.route.filter import filter_of
from concordant.route.link import LinkOptions, Logged, Newer, Reliable, Saved
from concordant.route.messages import Hello, Subscribed, Unsubscribed, Welcome
from concordant.route.packet import WIRE, Packet
from concordant.route.requests import Subscribe

OPTIONS = LinkOptions(held_count_max=2, log_count_max=3)


def broker() -> Reliable:
    one = Reliable(Broker("B", neighbours=("N",)), wire=WIRE, brokers=("N",), options=OPTIONS)
    one.handle(0, Started())
    return one


def sub(number: int) -> Subscribed:
    return Subscribed(f"n/s#{number}", filter_of("T", x=number))


def give(one: Reliable, first: int, *messages: Any, source: str = "N") -> list[Any]:
    return one.handle(1, Received(source, (Packet(0, first, messages, 0),)))


def known(one: Reliable) -> list[str]:
    return list(one.inner.router.tables.subscriptions)  # type: ignore[attr-defined]


def test_messages_are_taken_in_order_and_once() -> None:
    one = broker()
    give(one, 2, sub(2))
    assert known(one) == []
    give(one, 1, sub(1))
    assert known(one) == ["n/s#1", "n/s#2"]
    give(one, 1, Unsubscribed("n/s#1"), Unsubscribed("n/s#2"))  # a doubled packet, as it were
    assert known(one) == ["n/s#1", "n/s#2"]


def test_what_comes_too_early_is_kept_within_a_bound() -> None:
    one = broker()
    for number in (5, 4, 3, 2):
        give(one, number, sub(number))
    give(one, 1, sub(1))
    assert known(one) == ["n/s#1"]  # 5 and 4 filled the room, and 2 and 3 are repeated
    give(one, 2, sub(2), sub(3))
    assert known(one) == [f"n/s#{n}" for n in (1, 2, 3, 4, 5)]


def test_a_crash_replays_the_log_and_the_numbers_go_on() -> None:
    one = broker()
    log: list[Any] = [Logged(0, "begin", "", b"\x00")]
    for number in range(1, 9):
        for effect in give(one, number, sub(number)):
            if isinstance(effect, Persist):
                log = [*([] if effect.replaces else log), *effect.records]
    assert any(isinstance(record, Saved) for record in log) and len(log) <= 4
    again = Reliable(Broker("B", neighbours=("N",)), wire=WIRE, brokers=("N",), options=OPTIONS)
    effects = again.handle(5, Started(tuple(log)))
    assert known(again) == known(one)
    assert again.inner.snapshot() == one.inner.snapshot()
    asked = [m for e in effects if isinstance(e, Send) for m in e.messages]
    assert asked == [Packet(0, 0, (), 8, True)]


def test_what_is_not_acknowledged_is_repeated_until_it_is() -> None:
    one = Reliable(Client("c", broker="B"), wire=WIRE, client=True)
    one.handle(7, Started())
    (again,) = [e for e in one.handle(9, TimerFired(("link/repeat",))) if isinstance(e, Send)]
    assert again.messages == (Packet(7, 1, (Hello(),), 0),)
    one.handle(9, Received("B", (Packet(7, 1, (Welcome(),), 1),)))
    effects = one.handle(9, TimerFired(("link/repeat",)))
    assert not [e for e in effects if isinstance(e, Send)]


def test_a_client_whose_clock_went_back_takes_a_newer_session() -> None:
    one = Reliable(Client("c", broker="B"), wire=WIRE, client=True)
    one.handle(7, Started())
    effects = one.handle(8, Received("B", (Newer(50),)))
    (sent,) = [e for e in effects if isinstance(e, Send)]
    assert sent.messages == (Packet(51, 1, (Hello(),), 0),)
    server = broker()
    server.handle(0, Received("c", (Packet(50, 1, (Hello(),), 0),)))
    (answer,) = [
        e
        for e in server.handle(0, Received("c", (Packet(7, 1, (Hello(),), 0),)))
        if isinstance(e, Send)
    ]
    assert answer.messages == (Newer(50),)


def test_a_bad_message_is_dropped_and_the_others_are_not() -> None:
    one = broker()
    give(one, 1, sub(1), Welcome(), sub(2))
    assert known(one) == ["n/s#1", "n/s#2"]
    with pytest.raises(PeerError, match="on a link of packets"):
        one.handle(0, Received("N", (sub(3),)))


def test_a_refused_request_is_not_logged() -> None:
    one = Reliable(Client("c", broker="B"), wire=WIRE, client=True)
    one.handle(7, Started())
    before = one.snapshot()
    with pytest.raises(Exception, match="not connected yet"):
        one.handle(8, Command((Subscribe("s", filter_of("T")),)))
    assert one.snapshot() == before
