"""Time by rounds: every candidate once per round, so that a slow minute hits all of them alike.

Knows nothing of what is measured. Ratios are taken within a round and only then summarised.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter


@dataclass(frozen=True)
class Timing:
    """Seconds of one candidate, a value per round."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def fastest(self) -> float:
        """The round that nothing else on the machine disturbed, or the least."""
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """Slowest minus fastest round, as a share of the median."""
        return (max(self.seconds) - min(self.seconds)) / self.median

    def over(self, other: Timing) -> float:
        """The median of this one's time over the other's, round by round."""
        return statistics.median(
            mine / theirs for mine, theirs in zip(self.seconds, other.seconds, strict=True)
        )


def timed(run: Callable[[], object]) -> float:
    """Seconds of one call, without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        start = perf_counter()
        run()
        return perf_counter() - start
    finally:
        gc.enable()


def interleaved(rounds: int, candidates: Mapping[str, Callable[[], float]]) -> dict[str, Timing]:
    """Call each candidate once per round, in turn; each gives the seconds that count."""
    taken: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(rounds):
        for name, run in candidates.items():
            taken[name].append(run())
    return {name: Timing(tuple(seconds)) for name, seconds in taken.items()}


def growth(values: Sequence[float]) -> float:
    """The dearest over the cheapest."""
    return max(values) / min(values)
