"""Messages as bytes: they come back as they were, and bytes from a stranger never do harm."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concordant.errors import InvariantViolation, PeerError, UsageError
from concordant.machine.inputs import Message
from concordant.model.event import Event
from concordant.order.streams import Ask, Gone, Mark, Numbered
from concordant.wire.messages import Codec

CODEC = Codec([Numbered, Mark, Ask, Gone])

values = st.one_of(
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(max_size=8),
)
names = st.text("abc.", min_size=1, max_size=3)
events = st.builds(
    Event,
    st.sampled_from(["A", "B", "Gr\N{LATIN SMALL LETTER U WITH DIAERESIS}n"]),
    st.sampled_from(["s", "t"]),
    st.integers(0, 2**62),
    st.integers(-(2**62), 2**62),
    st.dictionaries(names, values, max_size=4),
    st.sampled_from(["", "given"]),
)
streams = st.tuples(st.sampled_from(["p", "q"]), st.sampled_from(["A", "B"]))
messages = st.one_of(
    st.builds(Numbered, streams, st.integers(1, 2**40), events),
    st.builds(Mark, streams, st.integers(0, 2**40)),
    st.builds(Ask, streams, st.integers(0, 9), st.integers(0, 9)),
)


@given(st.lists(messages, max_size=40))
@settings(max_examples=300, deadline=None)
def test_messages_come_back_as_they_were(sent: list[Message]) -> None:
    assert CODEC.decode(CODEC.encode(sent)) == tuple(sent)


@given(st.lists(st.builds(Numbered, streams, st.integers(1, 2**40), events), min_size=4))
@settings(max_examples=200, deadline=None)
def test_a_run_of_events_comes_back_as_it_was(sent: list[Message]) -> None:
    assert CODEC.decode(CODEC.encode(sent)) == tuple(sent)


def quotes(count: int) -> list[Message]:
    return [
        Numbered(
            ("exchange", "Quote"),
            number,
            Event("Quote", "exchange", number, 10**15 + number, {"symbol": "ACME", "value": 1.5}),
        )
        for number in range(1, count + 1)
    ]


def test_a_batch_of_like_events_takes_far_less_than_its_events_one_by_one() -> None:
    one_by_one = sum(len(CODEC.encode([one])) for one in quotes(100))
    assert len(CODEC.encode(quotes(100))) * 3 < one_by_one


def test_events_without_a_common_attribute_do_not_make_a_table_of_nothing() -> None:
    strange = [
        Numbered(("s", "A"), n, Event("A", "s", n, n, {f"only{n}": n})) for n in range(1, 400)
    ]
    assert len(CODEC.encode(strange)) < 400 * 110
    assert CODEC.decode(CODEC.encode(strange)) == tuple(strange)


def test_a_message_that_the_link_does_not_carry_is_refused_on_both_sides() -> None:
    class Foreign(msgspec.Struct, frozen=True, tag=True):
        word: str

    with pytest.raises(UsageError, match="a Foreign is no message of this link"):
        CODEC.encode([Foreign("x")])
    with pytest.raises(PeerError, match="unknown kind 'Foreign'"):
        CODEC.decode(Codec([Foreign]).encode([Foreign("x")]))


def decoded(data: bytes) -> Sequence[Message] | None:
    """What a stranger's bytes mean; None if they are refused in the one way that is allowed."""
    try:
        return CODEC.decode(data)
    except PeerError:
        return None


@given(st.binary(max_size=200))
@settings(max_examples=1_000, deadline=None)
def test_any_bytes_are_messages_or_refused(data: bytes) -> None:
    decoded(data)


def test_changed_bytes_are_messages_or_refused() -> None:
    rng = Random(7)
    good = CODEC.encode([*quotes(20), Mark(("p", "A"), 3)])
    refused = 0
    for _ in range(4_000):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        refused += (
            decoded(bytes(data[: rng.choice((len(data), rng.randrange(len(data)))) or 1])) is None
        )
    assert refused > 2_000


@pytest.mark.parametrize(
    "data",
    [
        b"\xdd\xff\xff\xff\xff",  # a list of 4 billion
        b"\xdb\xff\xff\xff\xff",  # a text of 4 gigabytes
        b"\x91" * 100_000,  # a list in a list in a list
        b"\x81" * 100_000,
        msgspec.msgpack.encode([["Mark", 10**12, [], []]]),
        msgspec.msgpack.encode([["Mark", 10**12, [[["x"], None]] * 3]]),
    ],
)
def test_bytes_that_promise_much_take_no_memory(data: bytes) -> None:
    tracemalloc.start()
    assert decoded(data) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000


def test_two_kinds_of_one_name_are_never_in_one_codec() -> None:
    other = msgspec.defstruct("Mark", [("n", int)], frozen=True, tag=True)
    with pytest.raises(InvariantViolation, match="both have a Mark"):
        Codec((Mark, other))
    assert Codec((Mark, Mark))
