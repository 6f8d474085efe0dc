"""Planted bugs in total order from conjunctions: each breaks a lemma of the thesis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from concordant.order.broadcast.from_conjunctions import Sent, TotalOrder
from tests.detection.planting import Plant, planted
from tests.oracles.conjunction_broadcast import broken, drawn

RUN_COUNT_MAX = 2_000
"""A bug that survives so many runs is not caught."""


@dataclass(frozen=True)
class ConjunctionBug:
    """A sentence that is false of the algorithm, and how to make it true."""

    name: str
    lemma: str
    seed: int
    """Of a run that is known to show it."""
    plant: Plant


CONJUNCTION_BUGS: list[ConjunctionBug] = []


def bug(name: str, lemma: str, seed: int) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        CONJUNCTION_BUGS.append(ConjunctionBug(name, lemma, seed, plant))
        return plant

    return add


def runs_to_find(which: ConjunctionBug, *, count_max: int = RUN_COUNT_MAX) -> int | None:
    """How many runs it takes, from seed 0 on."""
    with planted(which):
        for seed in range(count_max):
            if broken(drawn(seed).play()):
                return seed + 1
    return None


@bug("a relation is unpacked when it comes, in whatever order", "lemma 11", 4)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TotalOrder, "_ready", lambda self: self.held[0] if self.held else None)


@bug("a relation is unpacked when one of its messages is the next of its process", "lemma 11", 4)
def _(patch: pytest.MonkeyPatch) -> None:
    def ready(self: TotalOrder) -> tuple[Sent, ...] | None:
        for each in self.held:
            if any(one.n == self.delivered.get(one.process, 0) + 1 for one in each):
                return each
        return None

    patch.setattr(TotalOrder, "_ready", ready)


@bug("an idle process keeps nobody company", "lemma 9", 3)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = TotalOrder.next_sent

    def next_sent(self: TotalOrder, *, wanted: bool = False) -> Sent | None:
        del wanted
        return correct(self)

    patch.setattr(TotalOrder, "next_sent", next_sent)


@bug("what came back twice is delivered twice", "lemma 7", 0)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = TotalOrder.relation

    def relation(self: TotalOrder, events: Sequence[Sent]) -> list[Sent]:
        found = correct(self, events)
        return found + [one for one in found if one.process == self.process]

    patch.setattr(TotalOrder, "relation", relation)
