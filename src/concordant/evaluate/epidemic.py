"""How gossip spreads: what the analysis says, and what processes that draw as brokers do, show.

The analysis is that of lightweight probabilistic broadcast, which Kim and Ahn compare with: whoever
has an event gossips it in every later step to `fanout` others, messages are lost, processes crash.
`mean_field` and `chain` compute, `spread` plays; with pulls, a process that receives a later event
of the same chain asks its sender for what is missing. Times are counted in steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from concordant.causal.chance import Chance
from concordant.causal.gossip import targets

STEP_COUNT_MAX = 60
"""A spread that has not ended by then is given up."""


@dataclass(frozen=True)
class Shape:
    """Who gossips with whom, and what goes wrong."""

    count: int
    """Processes (n)."""
    fanout: int = 3
    view_count_max: int = 15
    loss: float = 0.05
    crash: float = 0.01

    @property
    def chance(self) -> float:
        """That one process that has an event infects a given other one in a step (p)."""
        return self.fanout / (self.count - 1) * (1 - self.loss) * (1 - self.crash)


def mean_field(shape: Shape, steps: int) -> list[float]:
    """The expected number of processes reached, if the expectation stood for the number.

    >>> [round(s, 1) for s in mean_field(Shape(125), 7)]
    [1.0, 3.8, 14.0, 44.6, 96.2, 121.9, 124.8, 125.0]
    """
    found = [1.0]
    for _ in range(steps):
        reached = found[-1]
        found.append(shape.count - (shape.count - reached) * (1 - shape.chance) ** reached)
    return found


@dataclass(frozen=True)
class Chain:
    """The exact distribution, step by step."""

    expected: list[float]
    all_by: list[float]
    """The chance that all are reached."""

    @property
    def steps_to_all(self) -> float:
        return float(sum(1 - share for share in self.all_by))


def chain(shape: Shape, steps: int = STEP_COUNT_MAX) -> Chain:
    """The Markov chain of the number of processes reached.

    >>> found = chain(Shape(125))
    >>> round(found.steps_to_all, 1), [round(s, 1) for s in found.expected[:6]]
    (6.2, [1.0, 3.8, 13.9, 42.7, 89.3, 117.8])
    """
    n = shape.count
    logs = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1)))))
    moves = np.zeros((n + 1, n + 1))
    for i in range(1, n + 1):
        j = np.arange(i, n + 1)
        stays = (1 - shape.chance) ** i
        ways = logs[n - i] - logs[j - i] - logs[n - j]
        moves[i, i:] = np.exp(ways + (j - i) * np.log1p(-stays) + (n - j) * np.log(stays))
    now = np.zeros(n + 1)
    now[1] = 1.0
    expected, all_by = [1.0], [float(n == 1)]
    for _ in range(steps):
        now = now @ moves
        expected.append(float(now @ np.arange(n + 1)))
        all_by.append(float(now[n]))
    return Chain(expected, all_by)


@dataclass
class Spread:
    """What was seen in some runs."""

    runs: int
    reached: list[float] = field(default_factory=list)
    """By step: processes that have the event, in the mean."""
    all_by: list[float] = field(default_factory=list)
    """By step: the share of runs in which all that did not crash have it."""
    steps_to_all: float = 0.0
    pulls: float = 0.0
    """Requests for what was missing, in the mean."""
    messages: float = 0.0


def spread(
    shape: Shape, *, runs: int, seed: int = 1, successors: bool = False, pull: bool = False
) -> Spread:
    """Play: one event, and (with `successors`) one more per step that follows all before.

    A successor is made in each step by somebody who has the event before it. Whoever gets one
    without the first event, and pulls, asks the sender, who has it. A step is much longer than a
    way there and back, so the answer comes in the same step; question and answer may be lost.
    """
    reached = np.zeros(STEP_COUNT_MAX + 1)
    complete = np.zeros(STEP_COUNT_MAX + 1)
    total = Spread(runs)
    for run in range(runs):
        curve, done_at, pulls, messages = _play(
            shape, Chance.of(seed, f"run {run}"), successors=successors, pull=pull
        )
        reached += curve
        complete[done_at:] += 1
        total.steps_to_all += done_at / runs
        total.pulls += pulls / runs
        total.messages += messages / runs
    total.reached = [float(one) for one in reached / runs]
    total.all_by = [float(one) for one in complete / runs]
    return total


_UNIT = 1 << 30


def _play(
    shape: Shape, chance: Chance, *, successors: bool, pull: bool
) -> tuple[np.ndarray, int, int, int]:
    n = shape.count
    crashed = [one > 0 and chance.below(_UNIT) < shape.crash * _UNIT for one in range(n)]
    alive = n - sum(crashed)
    arrives = int((1 - shape.loss) * _UNIT)
    have: list[dict[int, bool]] = [{0: True}]
    """By event: who has it."""
    curve = np.zeros(STEP_COUNT_MAX + 1)
    curve[0] = 1
    pulls = messages = 0
    for step in range(1, STEP_COUNT_MAX + 1):
        if successors:
            have.append({_holder(have[-1], chance): True})
        new: list[list[int]] = [[] for _ in have]
        asking: dict[int, bool] = {}
        for event, holders in enumerate(have):
            for holder in holders:
                others = range(n - 1)
                drawn = targets(
                    chance, others, fanout=shape.fanout, view_count_max=shape.view_count_max
                )
                for place in drawn:
                    target = place + (place >= holder)
                    messages += event == 0
                    if chance.below(_UNIT) >= arrives or crashed[target]:
                        continue
                    new[event].append(target)
                    if pull and event and target not in have[0] and holder in have[0]:
                        asking[target] = True
        for event, reached in enumerate(new):
            have[event].update(dict.fromkeys(reached, True))
        asking = {one: True for one in asking if one not in have[0]}
        pulls += len(asking)
        for one in asking:
            if chance.below(_UNIT) < arrives * arrives // _UNIT:
                have[0][one] = True
        curve[step] = len(have[0])
        if len(have[0]) == alive:
            curve[step:] = alive
            return curve, step, pulls, messages
    return curve, STEP_COUNT_MAX, pulls, messages


def _holder(holders: dict[int, bool], chance: Chance) -> int:
    return list(holders)[chance.below(len(holders))]
