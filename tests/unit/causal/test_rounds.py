"""Ages as bytes: what is written is read, and what is not an encoding is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from concordant.causal.rounds import decode, encode
from concordant.errors import PeerError

BROKERS = [f"b{number}" for number in range(20)]


@given(
    ages=st.dictionaries(st.sampled_from(BROKERS), st.integers(1, 2**40)), bits=st.integers(2, 8)
)
def test_ages_come_back_as_they_were(ages: dict[str, int], bits: int) -> None:
    assert decode(encode(ages, BROKERS, bits=bits), BROKERS) == ages


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        decode(data, BROKERS)
    except PeerError:
        return


def test_young_predecessors_of_all_brokers_take_two_bits_each() -> None:
    assert len(encode(dict.fromkeys(BROKERS, 2), BROKERS, bits=2)) == 1 + 5


def test_few_predecessors_of_many_brokers_are_named() -> None:
    many = [f"b{number}" for number in range(400)]
    assert len(encode({"b7": 1}, many, bits=2)) == 3


@pytest.mark.parametrize(
    "data", [b"\x02", b"\x09" + bytes(40), b"\x00\x05", b"\x00" + b"\xff" * 12]
)
def test_bad_ages_are_refused(data: bytes) -> None:
    with pytest.raises(PeerError):
        decode(data, BROKERS)
