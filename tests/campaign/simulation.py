"""Swarms of simulated runs per protocol, and planted bugs against the same checkers.

Every seed is a small world with a random mix of faults. The report fails if a promise is broken
anywhere, if a kind of fault really occurred in too few runs, if too little was delivered, or if a
planted bug survived. A failing seed is printed with the smallest scenario that still fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

from rich.table import Table

from concordant.sim.protocols import PROTOCOLS
from concordant.sim.run import simulate
from concordant.sim.scenario import FAULT_KINDS, scenario_text
from concordant.sim.swarm import minimised, random_scenario
from tests.campaign.shape import Options, Report
from tests.detection.simulation_bugs import BUGS, SEED_COUNT_MAX, seeds_to_find

NAME = "simulation"

SEED_COUNT = 10_000
"""Per protocol, for as many cases as a campaign has by default; fewer cases, fewer seeds."""
OCCURRED_SHARE_MIN = 0.1
"""Of the runs in which a kind of fault really did something."""
DELIVERING_SHARE_MIN = 0.95

_ONLY = {"suspicion": ("clock",)}
"""Faults that only some protocols can have; all others are for all."""
_CHUNK = 100
_SHOWN_MAX = 2
"""Failures that are minimised and printed; the others are only counted."""


@dataclass
class Tally:
    """What happened in some runs of one protocol."""

    protocol: str
    run_count: int = 0
    step_count: int = 0
    delivering_count: int = 0
    delivery_count: int = 0
    late_count: int = 0
    changing_count: int = 0
    """Runs in which somebody subscribed or unsubscribed at run time."""
    faults: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.run_count += other.run_count
        self.step_count += other.step_count
        self.delivering_count += other.delivering_count
        self.delivery_count += other.delivery_count
        self.late_count += other.late_count
        self.changing_count += other.changing_count
        self.faults += other.faults
        self.failed += other.failed


def tally(protocol: str, seeds: range) -> Tally:
    """Run the swarm's scenarios of these seeds."""
    found = Tally(protocol)
    for seed in seeds:
        scenario = random_scenario(protocol, seed)
        outcome = simulate(scenario, seed=seed)
        deliveries = [row for row in outcome.rows if row.step == "deliver"]
        found.run_count += 1
        found.step_count += outcome.step_count
        found.delivering_count += bool(deliveries)
        found.delivery_count += len(deliveries)
        found.late_count += sum(not row.in_order for row in deliveries)
        found.changing_count += bool(scenario.workload.subscriptions)
        kinds = (name.removeprefix("fault ") for name in outcome.recorder.counts)
        found.faults.update(kind for kind in kinds if kind in FAULT_KINDS)
        if outcome.failure is not None:
            found.failed.append(seed)
    return found


def seeds_for(number: int) -> int | None:
    """How many seeds it takes to find the planted bug of a number: bugs cannot be pickled."""
    return seeds_to_find(BUGS[number])


def run(options: Options) -> Report:
    """Swarms of all protocols, then the planted bugs."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    count = max(1, options.case_count * SEED_COUNT // Options.case_count)
    seeds = range((options.seed - 1) * count, options.seed * count)
    tallies = {name: Tally(name) for name in options.protocols or PROTOCOLS}
    total = count * len(tallies)
    done = 0
    with ProcessPoolExecutor(options.job_count, mp_context=get_context("spawn")) as pool:
        chunks = [
            (name, seeds[start : start + _CHUNK])
            for name in tallies
            for start in range(0, count, _CHUNK)
        ]
        work = [pool.submit(tally, *chunk) for chunk in chunks]
        for one in as_completed(work):
            part = one.result()
            tallies[part.protocol].add(part)
            done += part.run_count
            options.progress("runs", done, total)
        caught = list(pool.map(seeds_for, range(len(BUGS))))
    options.progress("planted bugs", len(BUGS), len(BUGS))
    report.tables += [_runs_table(tallies), _faults_table(tallies), _bugs_table(caught)]
    report.failures += _failures(tallies, caught)
    return report


def _failures(tallies: dict[str, Tally], caught: list[int | None]) -> Iterator[str]:
    for name, one in tallies.items():
        if one.failed:
            yield f"{name}: {len(one.failed)} of {one.run_count} runs broke a promise"
        for seed in sorted(one.failed)[:_SHOWN_MAX]:
            scenario = random_scenario(name, seed)
            failure = simulate(scenario, seed=seed).failure
            smallest = scenario_text(minimised(scenario, seed))
            yield f"{name}, seed {seed}: {failure}\nthe smallest scenario found:\n{smallest}"
        if one.delivering_count < DELIVERING_SHARE_MIN * one.run_count:
            yield f"{name}: only {one.delivering_count} of {one.run_count} runs delivered anything"
        for kind in FAULT_KINDS:
            wanted = name in _ONLY.get(kind, (name,))
            if wanted and one.faults[kind] < OCCURRED_SHARE_MIN * one.run_count:
                yield f"{name}: {kind} occurred in {one.faults[kind]} of {one.run_count} runs only"
    for which, seeds in zip(BUGS, caught, strict=True):
        if seeds is None:
            yield f"planted bug survived {SEED_COUNT_MAX} seeds: {which.name}"


def _runs_table(tallies: dict[str, Tally]) -> Table:
    table = Table("protocol", "runs", "broke a promise", "delivered", "late", "changing", "steps")
    for name, one in tallies.items():
        numbers = (
            one.run_count,
            len(one.failed),
            one.delivery_count,
            one.late_count,
            one.changing_count,
            one.step_count,
        )
        table.add_row(name, *(f"{number:,}" for number in numbers))
    return table


def _faults_table(tallies: dict[str, Tally]) -> Table:
    table = Table("fault, in % of the runs", *tallies)
    for kind in FAULT_KINDS:
        shares = (f"{100 * one.faults[kind] / one.run_count:.0f}" for one in tallies.values())
        table.add_row(kind, *shares)
    return table


def _bugs_table(caught: list[int | None]) -> Table:
    table = Table("planted bug", "protocol", "found after seeds")
    for which, seeds in zip(BUGS, caught, strict=True):
        table.add_row(which.name, which.protocol, "SURVIVED" if seeds is None else str(seeds))
    return table
