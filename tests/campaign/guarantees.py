"""The table of guarantees in both directions, for every policy, and staged.

Drawn subscriptions are played with those beside them until every kept property was looked at in
enough runs that deliver, and every lost one was found violated. The report fails if a kept
property has a counterexample, if a lost one was not found, or if too few runs exercised something.
"""

from __future__ import annotations

import math
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from random import Random

from rich.table import Table

from concordant.check.properties import PROPERTIES
from concordant.check.verdict import Verdict
from concordant.guarantees.cast import cast
from concordant.guarantees.draw import draw_subscription
from concordant.guarantees.scene import Played
from concordant.guarantees.search import Counterexample, search, shrink
from concordant.guarantees.table import lost_by_policy
from concordant.guarantees.timeline import timeline
from concordant.model.subscription import Policy
from tests.campaign.shape import Options, Report
from tests.generators import ALL_POLICIES

NAME = "guarantees"

FULL_CASE_COUNT = 110_000
"""The usual number of cases; thresholds shrink with it."""
DELIVERING_COUNT_MIN = 10_000
"""Runs that deliver, per policy and kept property."""
EXERCISED_COUNT_MIN = 1_000
"""Runs in which a kept property had something to say: two events to compare, say."""

_DRAWS_PER_JOB = 50
_SCENES_PER_DRAW = 8
_LOST_EVERY = 4
"""Lost properties are searched in one draw of so many: they are found soon, and again each time."""


@dataclass
class Tally:
    """What happened in some runs of one policy."""

    policy: Policy
    delivering: Counter[str] = field(default_factory=Counter)
    """Runs that delivered something, by property that was looked at."""
    exercised: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    """Subscriptions for which a counterexample was found, by property."""
    wrong: list[str] = field(default_factory=list)
    """Counterexamples of properties that should be kept."""

    def add(self, other: Tally) -> None:
        self.delivering += other.delivering
        self.exercised += other.exercised
        self.found += other.found
        self.wrong += other.wrong


def tally(seed: int, policy: Policy, job: int) -> Tally:
    """Play the scenes of one job."""
    rng = Random(f"{seed}/{policy}/{job}")
    mine = Tally(policy)
    lost = lost_by_policy(policy)
    kept = [name for name in PROPERTIES if name not in lost]

    def watch(played: Played, verdict: Verdict) -> None:
        mine.delivering[verdict.name] += any(row.step == "deliver" for row in played.rows)
        mine.exercised[verdict.name] += bool(verdict.checked)

    for number in range(_DRAWS_PER_JOB):
        others = [draw_subscription(rng, policy)] if number % 2 else []
        subscribers = cast(draw_subscription(rng, policy), *others)
        names = [*kept, *(lost if number % _LOST_EVERY == 0 else ())]
        found = search(
            subscribers, names, rng, scene_count=_SCENES_PER_DRAW, endless_every=1, watch=watch
        )
        for name, example in found.items():
            mine.found[name] += 1
            if name not in lost:
                mine.wrong.append(_told(example))
    return mine


def _told(example: Counterexample) -> str:
    return f"{example.verdict.name}\n{timeline(shrink(example, keep=''))}"


def run(options: Options) -> Report:
    """Search all policies, or one."""
    report = Report(NAME)
    policies = ALL_POLICIES if options.policy is None else (options.policy,)
    scale = min(1.0, options.case_count / FULL_CASE_COUNT)
    least = math.ceil(DELIVERING_COUNT_MIN * scale)
    tallies = {policy: Tally(policy) for policy in policies}
    spawned = get_context("spawn")
    with ProcessPoolExecutor(options.job_count, mp_context=spawned) as pool:
        first = math.ceil(1.05 * least / (_DRAWS_PER_JOB * _SCENES_PER_DRAW))
        job, waiting = 0, [*policies]
        while waiting and job < 4 * first:
            # What is inconclusive or rare needs more: a few jobs at a time, where still needed.
            more = first if job == 0 else math.ceil(first / 4)
            jobs = [
                pool.submit(tally, options.seed, policy, number)
                for number in range(job, job + more)
                for policy in waiting
            ]
            for done, one in enumerate(as_completed(jobs), start=1):
                part = one.result()
                tallies[part.policy].add(part)
                options.progress(f"jobs from {job}", done, len(jobs))
            job += more
            waiting = [p for p in waiting if _missing(tallies[p], least)]
    report.tables.append(_table(tallies))
    for one in tallies.values():
        report.failures += [f"'{one.policy}' should keep {wrong}" for wrong in one.wrong[:2]]
        report.failures += [f"'{one.policy}': {what}" for what in _missing(one, least)]
        report.failures += [
            f"'{one.policy}': {name} was exercised in {one.exercised[name]} runs only"
            for name in PROPERTIES
            if name not in lost_by_policy(one.policy)
            and one.exercised[name] < EXERCISED_COUNT_MIN * scale
        ]
    if scale < 1:
        report.notes.append(
            f"{least:,} runs per kept property are asked for, not {DELIVERING_COUNT_MIN:,}"
        )
    return report


def _missing(one: Tally, least: int) -> list[str]:
    """What the runs have not shown yet."""
    lost = lost_by_policy(one.policy)
    found = [
        f"{name} is lost, and no counterexample was found" for name in lost if not one.found[name]
    ]
    return found + [
        f"{name} was looked at in {one.delivering[name]} runs that deliver"
        for name in PROPERTIES
        if name not in lost and one.delivering[name] < least
    ]


def _table(tallies: dict[Policy, Tally]) -> Table:
    table = Table(
        "policy",
        title="guarantees: kept properties without counterexample, lost ones with",
    )
    for heading in ("kept", "runs that deliver", "exercised", "wrong", "lost", "found", "times"):
        table.add_column(heading, justify="right")
    for one in tallies.values():
        lost = lost_by_policy(one.policy)
        kept = [name for name in PROPERTIES if name not in lost]
        table.add_row(
            str(one.policy),
            str(len(kept)),
            f"≥ {min(one.delivering[name] for name in kept):,}",
            f"≥ {min(one.exercised[name] for name in kept):,}",
            str(len(one.wrong)),
            str(len(lost)),
            str(sum(bool(one.found[name]) for name in lost)),
            f"≥ {min((one.found[name] for name in lost), default=0)}",
        )
    return table
