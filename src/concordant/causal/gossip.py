"""Gossip: whom to tell, and what to say when asked.

A broker that delivers an event tells a few random peers; each of them does the same once. A digest
to one random peer per tick finds what that missed. Whom to tell is drawn anew every time, from a
fresh uniform view of the peers, so no membership beyond names is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from concordant.causal.chance import Chance

V = TypeVar("V")


def targets(chance: Chance, peers: Sequence[V], *, fanout: int, view_count_max: int) -> list[V]:
    """So many of a fresh random view of the peers.

    A sample of a uniform sample is a uniform sample, so the view is not drawn for itself: it only
    bounds the fan-out (which is why its size drops out of the analysis, too).

    >>> len(targets(Chance.of(1, "a"), ["b", "c", "d"], fanout=2, view_count_max=15))
    2
    """
    return chance.sample(peers, min(fanout, view_count_max))
