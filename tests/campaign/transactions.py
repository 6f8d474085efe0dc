"""Scenes of transactions of every kind and workload, and planted bugs against the same checkers.

Every seed is a small overlay with concurrent transactions; in part of them links lose messages,
brokers and clients crash, are mute, or lose their memory. The report fails if a promise is broken
anywhere, if too little was committed or aborted, if a kind of fault hardly occurred, or if a
planted bug survived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import get_args

from rich.table import Table

from concordant.sim.transaction_load import WORKLOADS, scene
from concordant.sim.transactions import simulate_transactions
from concordant.transact.actions import Kind
from tests.campaign.shape import Options, Report
from tests.detection.transaction_bugs import SCENE_COUNT_MAX, scenes_to_find
from tests.detection.transaction_edge_bugs import BUGS

NAME = "transactions"

SCENE_COUNT = 2_800
"""Per kind and workload, for as many cases as a campaign has by default: over 100,000 in all."""
COMMITTED_SHARE_MIN = 0.4
ABORTED_SHARE_MIN = 0.1
OCCURRED_SHARE_MIN = {"crash": 0.2, "amnesia": 0.05, "pause": 0.1, "loss": 0.5}
"""How often a fault occurred, per scene."""
KINDS: tuple[Kind, ...] = get_args(Kind)
_CHUNK = 20
_SHOWN_MAX = 3


@dataclass
class Tally:
    """What happened in some scenes of one kind."""

    kind: Kind
    scene_count: int = 0
    step_count: int = 0
    commit_count: int = 0
    abort_count: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[tuple[str, int, str]] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.scene_count += other.scene_count
        self.step_count += other.step_count
        self.commit_count += other.commit_count
        self.abort_count += other.abort_count
        self.faults += other.faults
        self.failed += other.failed


def tally(kind: Kind, workload: str, seeds: range) -> Tally:
    """Run the scenes of these seeds."""
    found = Tally(kind)
    for seed in seeds:
        outcome = simulate_transactions(scene(kind, workload, seed))
        outcomes = outcome.run.outcomes()
        found.scene_count += 1
        found.step_count += outcome.step_count
        found.commit_count += sum(outcomes.values())
        found.abort_count += len(outcomes) - sum(outcomes.values())
        found.faults.update({k.removeprefix("fault "): n for k, n in outcome.faults.items()})
        if outcome.failure is not None:
            found.failed.append((workload, seed, str(outcome.failure)))
    return found


def scenes_for(number: int) -> int | None:
    """How many scenes it takes to find the planted bug of a number: bugs cannot be pickled."""
    return scenes_to_find(BUGS[number])


def run(options: Options) -> Report:
    """Scenes of all kinds and workloads, then the planted bugs."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    count = max(1, options.case_count * SCENE_COUNT // Options.case_count)
    seeds = range((options.seed - 1) * count, options.seed * count)
    tallies = {kind: Tally(kind) for kind in KINDS}
    total = count * len(KINDS) * len(WORKLOADS)
    done = 0
    with ProcessPoolExecutor(options.job_count, mp_context=get_context("spawn")) as pool:
        work = [
            pool.submit(tally, kind, workload, seeds[start : start + _CHUNK])
            for start in range(0, count, _CHUNK)
            for kind in KINDS
            for workload in WORKLOADS
        ]
        for one in as_completed(work):
            part = one.result()
            tallies[part.kind].add(part)
            done += part.scene_count
            options.progress("scenes", done, total)
        caught = list(pool.map(scenes_for, range(len(BUGS))))
    options.progress("planted bugs", len(BUGS), len(BUGS))
    report.tables += [_table(tallies), _bugs_table(caught)]
    report.failures += _failures(tallies, caught)
    return report


def _failures(tallies: dict[Kind, Tally], caught: list[int | None]) -> Iterator[str]:
    for kind, one in tallies.items():
        if one.failed:
            yield f"{kind}: {len(one.failed)} of {one.scene_count} scenes broke a promise"
        for workload, seed, failure in sorted(one.failed)[:_SHOWN_MAX]:
            yield f"{kind}, {workload}, seed {seed}: {failure}"
        ended = one.commit_count + one.abort_count
        if one.commit_count < COMMITTED_SHARE_MIN * ended:
            yield f"{kind}: only {one.commit_count} of {ended} transactions committed"
        if one.abort_count < ABORTED_SHARE_MIN * ended:
            yield f"{kind}: only {one.abort_count} of {ended} transactions aborted"
        for fault, share in OCCURRED_SHARE_MIN.items():
            if one.faults[fault] < share * one.scene_count:
                yield f"{kind}: {fault} occurred {one.faults[fault]} times only"
    for which, scenes in zip(BUGS, caught, strict=True):
        if scenes is None:
            yield f"planted bug survived {SCENE_COUNT_MAX} scenes: {which.name}"


def _table(tallies: dict[Kind, Tally]) -> Table:
    faults = sorted({fault for one in tallies.values() for fault in one.faults})
    table = Table(
        "transactions", "scenes", "broke a promise", "commits", "aborts", *faults, "steps"
    )
    for kind, one in tallies.items():
        numbers = (
            one.scene_count,
            len(one.failed),
            one.commit_count,
            one.abort_count,
            *(one.faults[fault] for fault in faults),
            one.step_count,
        )
        table.add_row(kind, *(f"{number:,}" for number in numbers))
    return table


def _bugs_table(caught: list[int | None]) -> Table:
    table = Table("planted bug", "found after scenes")
    for which, scenes in zip(BUGS, caught, strict=True):
        table.add_row(which.name, "SURVIVED" if scenes is None else str(scenes))
    return table
