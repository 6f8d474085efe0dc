"""One question of every policy, with a key and without, over random events of two sources.

One source is always ahead, so a file holds events that belong after some of the next file.
"""

from __future__ import annotations

from random import Random
from typing import Any

from concordant.local import correlate
from tests.generators import ALL_POLICIES

QUESTION = "\n".join(
    f"p{number}: T[1].v < T[2].v and U.v = T[1].v {policy} partition by k within 2 s\n"
    f"q{number}: U[1].v > U[2].v and T.v != 3 {policy} within 1 s"
    for number, policy in enumerate(ALL_POLICIES)
)
_CHANCE = Random(3)
ROWS: list[dict[str, Any]] = [
    {
        "topic": _CHANCE.choice("TU"),
        "source": (source := _CHANCE.choice("ab")),
        "seq": number,
        "time": 20_000 * number + 90_000 * (source == "b"),
        "k": _CHANCE.randrange(4),
        "v": _CHANCE.randrange(9),
    }
    for number in range(240)
]


def expected(rows: list[dict[str, Any]] = ROWS) -> list[tuple[Any, ...]]:
    """What the kernel alone gives: ids of relations and of their events, in order."""
    return [(one.id, one.event_ids) for one in correlate(rows, QUESTION)]
