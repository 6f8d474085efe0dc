"""Ages: how a subscriber is told, in a few bits per broker, what must come before an event.

In the profile `rounds` a position is a round. What an event follows is then one number per origin:
its own round minus the round of the origin's last event that matters to the subscriber. Rounds are
a Lamport clock, so an age is at least 1, and mostly small. The short form has one code of a few
bits for every broker: 0 for none, the age itself, or (all bits set) an escape, whose age follows as
a varint. The colours of Kim and Ahn are these codes; without the absolute round of the event, and
without the escape, they are ambiguous, and deliveries come too early or never.

Where few of many brokers matter, the long form (number of the broker and age) is shorter; the first
byte says which form it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from concordant.errors import PeerError

_SPARSE = 0


def encode(ages: Mapping[str, int], brokers: Sequence[str], *, bits: int) -> bytes:
    """Ages by broker as bytes, in the shorter form.

    >>> encode({"b": 1, "c": 9}, ["a", "b", "c"], bits=2).hex()
    '023409'
    >>> encode({}, ["a", "b", "c"], bits=2)
    b''
    """
    if not ages:
        return b""
    dense, sparse = _dense(ages, brokers, bits), _sparse(ages, brokers)
    return dense if len(dense) <= len(sparse) else sparse


def decode(data: bytes, brokers: Sequence[str]) -> dict[str, int]:
    """Ages by broker; what is not an encoding is the sender's fault.

    >>> decode(bytes.fromhex("023409"), ["a", "b", "c"])
    {'b': 1, 'c': 9}
    """
    if not data:
        return {}
    try:
        return _read_sparse(data, brokers) if data[0] == _SPARSE else _read_dense(data, brokers)
    except IndexError:
        raise PeerError("ages end too early, or name a broker that does not exist") from None


def _dense(ages: Mapping[str, int], brokers: Sequence[str], bits: int) -> bytes:
    escape = (1 << bits) - 1
    word = 0
    late = bytearray()
    for number, broker in enumerate(brokers):
        age = ages.get(broker, 0)
        if age >= escape:
            _put_varint(late, age)
            age = escape
        word |= age << (bits * number)
    return bytes([bits]) + word.to_bytes(-(-bits * len(brokers) // 8), "little") + bytes(late)


def _read_dense(data: bytes, brokers: Sequence[str]) -> dict[str, int]:
    bits = data[0]
    length = -(-bits * len(brokers) // 8)
    if bits > 8 or len(data) < 1 + length:
        raise PeerError("ages end too early")
    word = int.from_bytes(data[1 : 1 + length], "little")
    escape = (1 << bits) - 1
    place = 1 + length
    found: dict[str, int] = {}
    for number, broker in enumerate(brokers):
        age = (word >> (bits * number)) & escape
        if age == escape:
            age, place = _varint(data, place)
        if age:
            found[broker] = age
    return found


def _sparse(ages: Mapping[str, int], brokers: Sequence[str]) -> bytes:
    found = bytearray([_SPARSE])
    for number, broker in enumerate(brokers):
        if broker in ages:
            _put_varint(found, number)
            _put_varint(found, ages[broker])
    return bytes(found)


def _read_sparse(data: bytes, brokers: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    place = 1
    while place < len(data):
        number, place = _varint(data, place)
        age, place = _varint(data, place)
        found[brokers[number]] = age
    return found


def _put_varint(into: bytearray, value: int) -> None:
    while value > 0x7F:
        into.append(value & 0x7F | 0x80)
        value >>= 7
    into.append(value)


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise PeerError("an age does not fit into 63 bits")
