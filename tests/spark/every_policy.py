"""One question of every policy, with a key and without, over random events of two sources.

One source is always ahead, so a file holds events that belong after some of the next file.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

from concordant.local import correlate
from tests.generators import ALL_POLICIES

QUESTION = "\n".join(
    f"p{number}: T[1].v < T[2].v and U.v = T[1].v {policy} partition by k within 2 s\n"
    f"q{number}: U[1].v > U[2].v and T.v != 3 {policy} within 1 s"
    for number, policy in enumerate(ALL_POLICIES)
)
ROW_COUNT = 240
NULL_SHARE = 0.03


@cache
def rows_of(seed: int) -> list[dict[str, Any]]:
    """Events of a seed; a few have no key, or no value."""
    chance = Random(seed)
    return [
        {
            "topic": chance.choice("TU"),
            "source": (source := chance.choice("ab")),
            "seq": number,
            "time": 20_000 * number + 90_000 * (source == "b"),
            "k": chance.randrange(4) if chance.random() > NULL_SHARE else None,
            "v": chance.randrange(9) if chance.random() > NULL_SHARE else None,
        }
        for number in range(ROW_COUNT)
    ]


def expected(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """What the kernel alone gives: ids of relations and of their events, in order."""
    return [(one.id, one.event_ids) for one in correlate(rows, QUESTION)]
