"""The baselines of total order in a storm: replicas crash and pause again and again.

The campaign of the simulation runs them among all protocols, with faults of every kind. Here each
run changes its leader several times, which is where these protocols can go wrong; and the bugs that
are planted in them have to be found. Total order from conjunctions is no machine: its processes run
over a layer that delivers relations in any order, and a minority of them stops.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

from rich.table import Table

from concordant.sim.broadcast import KINDS
from concordant.sim.run import simulate
from concordant.sim.swarm import random_scenario
from tests.campaign.shape import Options, Report
from tests.detection.broadcast_bugs import BROADCAST_BUGS, stormy
from tests.detection.conjunction_bugs import CONJUNCTION_BUGS, runs_to_find
from tests.detection.simulation_bugs import SEED_COUNT_MAX, seeds_to_find
from tests.oracles.conjunction_broadcast import broken, drawn

NAME = "broadcast"
CONJUNCTIONS = "from conjunctions"
"""Algorithm 2.2."""

SEED_COUNT = 10_000
"""Per baseline, for as many cases as a campaign has by default."""
_CHUNK = 50
_SHOWN_MAX = 3


@dataclass
class Tally:
    """What happened in some runs of one baseline."""

    protocol: str
    run_count: int = 0
    delivery_count: int = 0
    crash_count: int = 0
    failed: dict[int, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.run_count += other.run_count
        self.delivery_count += other.delivery_count
        self.crash_count += other.crash_count
        self.failed |= other.failed


def tally(protocol: str, seeds: range) -> Tally:
    """Run these seeds in a storm."""
    found = Tally(protocol)
    for seed in seeds:
        outcome = simulate(stormy(random_scenario(protocol, seed)), seed=seed)
        found.run_count += 1
        found.delivery_count += sum(row.step == "deliver" for row in outcome.rows)
        found.crash_count += outcome.recorder.counts["fault crash"]
        if outcome.failure is not None:
            found.failed[seed] = str(outcome.failure)
    return found


def tally_conjunctions(seeds: range) -> Tally:
    """Run algorithm 2.2 from these seeds."""
    found = Tally(CONJUNCTIONS)
    for seed in seeds:
        run = drawn(seed).play()
        found.run_count += 1
        found.delivery_count += sum(map(len, run.delivered.values()))
        found.crash_count += run.count - len(run.correct)
        wrong = broken(run)
        if wrong:
            found.failed[seed] = wrong
    return found


def runs_for(number: int) -> int | None:
    """How many runs it takes to find the planted bug of a number in algorithm 2.2."""
    return runs_to_find(CONJUNCTION_BUGS[number])


def seeds_for(number: int) -> int | None:
    """How many seeds it takes to find the planted bug of a number: bugs cannot be pickled."""
    return seeds_to_find(BROADCAST_BUGS[number])


def run(options: Options) -> Report:
    """All baselines, then the planted bugs."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    count = max(1, options.case_count * SEED_COUNT // Options.case_count)
    seeds = range((options.seed - 1) * count, options.seed * count)
    tallies = {name: Tally(name) for name in (*KINDS, CONJUNCTIONS)}
    done = 0
    with ProcessPoolExecutor(options.job_count, mp_context=get_context("spawn")) as pool:
        work = [
            pool.submit(tally, name, seeds[start : start + _CHUNK])
            for name in KINDS
            for start in range(0, count, _CHUNK)
        ]
        work += [
            pool.submit(tally_conjunctions, seeds[start : start + _CHUNK])
            for start in range(0, count, _CHUNK)
        ]
        for one in as_completed(work):
            part = one.result()
            tallies[part.protocol].add(part)
            done += part.run_count
            options.progress("runs", done, count * len(tallies))
        caught = list(pool.map(seeds_for, range(len(BROADCAST_BUGS))))
        caught += pool.map(runs_for, range(len(CONJUNCTION_BUGS)))
    report.tables += [_table(tallies), _bugs_table(caught)]
    report.failures += _failures(tallies, caught)
    return report


def _failures(tallies: dict[str, Tally], caught: list[int | None]) -> Iterator[str]:
    for name, one in tallies.items():
        if one.failed:
            yield f"{name}: {len(one.failed)} of {one.run_count} runs broke a promise"
        for seed in sorted(one.failed)[:_SHOWN_MAX]:
            yield f"{name}, seed {seed}: {one.failed[seed]}"
        stopped = one.crash_count * (4 if name == CONJUNCTIONS else 1)  # in every second at most
        if stopped < one.run_count or one.delivery_count < one.run_count:
            yield f"{name}: too little happened in {one.run_count} runs"
    for which, seeds in zip(_bugs(), caught, strict=True):
        if seeds is None:
            yield f"planted bug survived {SEED_COUNT_MAX} seeds: {which[0]}"


def _table(tallies: dict[str, Tally]) -> Table:
    table = Table("baseline", "runs", "broke a promise", "delivered", "crashes")
    for name, one in tallies.items():
        numbers = (one.run_count, len(one.failed), one.delivery_count, one.crash_count)
        table.add_row(name, *(f"{number:,}" for number in numbers))
    return table


def _bugs_table(caught: list[int | None]) -> Table:
    table = Table("planted bug", "baseline", "found after seeds")
    for which, seeds in zip(_bugs(), caught, strict=True):
        table.add_row(*which, "SURVIVED" if seeds is None else str(seeds))
    return table


def _bugs() -> list[tuple[str, str]]:
    found = [(which.name, which.protocol) for which in BROADCAST_BUGS]
    return found + [(which.name, CONJUNCTIONS) for which in CONJUNCTION_BUGS]
