"""Random overlaps of subscriptions, as rankings are measured on them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from concordant.order.sequencing.overlap import overlap


@dataclass(frozen=True)
class Overlap:
    """So many subscribers hold so many topics each; the k-th topic has the weight k^-shape."""

    topics: int
    subscribers: int
    each: int
    shape: float

    def __str__(self) -> str:
        popularity = f"power {self.shape}" if self.shape else "uniform"
        return f"{self.topics} topics, {self.subscribers} x {self.each}, {popularity}"


ROWS = (
    Overlap(50, 100, 5, 0.0),
    Overlap(50, 100, 5, 0.9),
    Overlap(200, 100, 5, 0.9),
    Overlap(200, 1000, 5, 0.9),
    Overlap(1000, 200, 10, 0.9),
)
"""The overlaps of the specification."""


def drawn(row: Overlap, *, seed: int) -> tuple[dict[str, set[str]], dict[str, float], list[str]]:
    """The overlap graph, the share of each topic in the events, and a random ranking."""
    rng = Random(f"{seed}/{row}")
    topics = [f"T{number}" for number in range(1, row.topics + 1)]
    weights = [number**-row.shape for number in range(1, row.topics + 1)]
    held = [_chosen(topics, weights, row.each, rng) for _ in range(row.subscribers)]
    found = overlap(held)
    graph = {topic: found.get(topic, set()) for topic in topics}
    rates = {topic: weight / sum(weights) for topic, weight in zip(topics, weights, strict=True)}
    order = list(topics)
    rng.shuffle(order)
    return graph, rates, order


def _chosen(topics: list[str], weights: list[float], count: int, rng: Random) -> list[str]:
    keys = [rng.random() ** (1 / weight) for weight in weights]
    places = sorted(range(len(topics)), key=keys.__getitem__, reverse=True)[:count]
    return [topics[place] for place in places]
