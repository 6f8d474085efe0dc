"""Numbered streams: whatever is lost, doubled or overtaken, everything comes once and in order."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from concordant.machine.holdback import Holdback
from concordant.model.event import Event
from concordant.order.streams import Ask, Gone, Incoming, Numbered, Outgoing

STREAM = ("p", "T")


def event(n: int) -> Event:
    return Event("T", "p", n, n)


@given(st.integers(1, 40), st.integers(2, 50), st.integers(0, 10_000))
def test_a_receiver_that_asks_gets_everything_once_and_in_order(
    count: int, bound: int, seed: int
) -> None:
    rng = Random(seed)
    outgoing = Outgoing(kept_count_max=1_000)
    incoming = Incoming(Holdback(bound))
    got: list[Event] = []
    sent = [(outgoing.append(event(n)), event(n)) for n in range(1, count + 1)]
    rng.shuffle(sent)
    for n, one in sent[: rng.randint(0, count)] * 2:
        got += incoming.accept(n, one)
    incoming.known = count
    while not incoming.complete:
        first, last = incoming.missing()
        for one in outgoing.answer(Ask(STREAM, first, last), count_max=3):
            assert isinstance(one, Numbered)
            got += incoming.accept(one.n, one.event)
    assert [one.seq for one in got] == list(range(1, count + 1))
    assert not len(incoming.held)


def test_what_is_no_longer_kept_is_gone_and_the_receiver_goes_on() -> None:
    outgoing = Outgoing(kept_count_max=2)
    for n in range(1, 8):
        outgoing.append(event(n))
    answer = outgoing.answer(Ask(STREAM, 1, 6), count_max=10)
    assert answer[0] == Gone(STREAM, 5)
    incoming = Incoming(Holdback(10))
    incoming.accept(6, event(6))
    incoming.accept(7, event(7))
    assert incoming.skip(6) == [event(6), event(7)]
    assert incoming.next == 8
