"""How popular topics are: all alike, or a few of them much more than the rest.

Baldoni 2011 names two power laws by their shapes, 0.269 and 0.901, and says what they mean: 40 %,
or 0.5 %, of the topics get 80 % of the publications. That statement is what is built here: the
first x of all topics get x to the power b, and b follows from the two shares.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from math import log
from random import Random

_SHARE_OF_TOPICS = {"power-law 0.269": 0.4, "power-law 0.901": 0.005}
_SHARE_OF_EVENTS = 0.8


def weights(count: int, popularity: str) -> list[float]:
    """The probability of each of so many topics, the most popular first.

    >>> [round(one, 2) for one in weights(2, "uniform")]
    [0.5, 0.5]
    >>> round(sum(weights(1000, "power-law 0.269")[:400]), 3)
    0.8
    >>> round(sum(weights(1000, "power-law 0.901")[:5]), 3)
    0.8
    """
    if popularity == "uniform":
        return [1 / count] * count
    exponent = log(_SHARE_OF_EVENTS) / log(_SHARE_OF_TOPICS[popularity])
    reached = [(rank / count) ** exponent for rank in range(count + 1)]
    return [after - before for before, after in pairwise(reached)]


def chosen(topics: Sequence[str], count: int, popularity: str, rng: Random) -> tuple[str, ...]:
    """So many different topics, popular ones more often; in the order of the topics."""
    if count >= len(topics):
        return tuple(topics)
    # Each topic draws a key; the largest keys win: sampling by weight without replacement.
    keys = {
        topic: rng.random() ** power
        for topic, power in zip(topics, _powers(len(topics), popularity), strict=True)
    }
    wanted = frozenset(sorted(topics, key=lambda topic: keys[topic], reverse=True)[:count])
    return tuple(topic for topic in topics if topic in wanted)


@cache
def _powers(count: int, popularity: str) -> tuple[float, ...]:
    return tuple(1 / max(weight, 1e-12) for weight in weights(count, popularity))
