"""Vectors: how far each origin has come in each topic.

A vector maps topics to origins to positions. What is absent is 0. Everything that the protocol
knows about the past (what was delivered, what is stable, what an event follows) has this one form,
and is only ever raised. The module knows no protocol.
"""

from __future__ import annotations

from collections.abc import Container, Iterator

Vector = dict[str, dict[str, int]]
"""Topic to origin to the last position."""

Entry = tuple[str, str, int]
"""Topic, origin, position."""

_NONE: dict[str, int] = {}


def position(vector: Vector, topic: str, origin: str) -> int:
    """
    >>> position({"T": {"a": 3}}, "T", "a"), position({}, "T", "a")
    (3, 0)
    """
    return vector.get(topic, _NONE).get(origin, 0)


def lift(vector: Vector, topic: str, origin: str, n: int) -> None:
    """Raise one position; a lower one changes nothing."""
    row = vector.get(topic)
    if row is None:
        vector[topic] = {origin: n}
    elif n > row.get(origin, 0):
        row[origin] = n


def join(vector: Vector, other: Vector) -> bool:
    """Raise every position to that of another vector; True if one was lower.

    >>> mine = {"T": {"a": 3}}
    >>> join(mine, {"T": {"a": 1, "b": 2}}), join(mine, {"T": {"a": 1}})
    (True, False)
    >>> mine
    {'T': {'a': 3, 'b': 2}}
    """
    raised = False
    for topic, row in other.items():
        mine = vector.get(topic)
        if mine is None:
            vector[topic] = dict(row)
            raised = True
            continue
        for origin, n in row.items():
            if n > mine.get(origin, 0):
                mine[origin] = n
                raised = True
    return raised


def joined(vector: Vector, other: Vector) -> Vector:
    """Both together: the first as it is, if it has all of the second, else a new vector.

    >>> low, high = {"T": {"a": 3}}, {"T": {"a": 4}, "U": {"a": 1}}
    >>> joined(low, high) == high, joined(high, low) is high
    (True, True)
    """
    if not other or vector == other:
        return vector
    found = copied(vector)
    return found if join(found, other) else vector


def copied(vector: Vector) -> Vector:
    """A copy that goes its own way: what is sent must not change afterwards."""
    return {topic: dict(row) for topic, row in vector.items()}


def restricted(vector: Vector, topics: Container[str]) -> Vector:
    """A copy with only these topics."""
    return {topic: dict(row) for topic, row in vector.items() if topic in topics}


def entries(vector: Vector) -> Iterator[Entry]:
    return ((topic, origin, n) for topic, row in vector.items() for origin, n in row.items())
