"""Ordered merging: random cases of every mode against the oracle, and planted bugs.

A case has hosts, clients, subscriptions that come and go, and faults, all from a seed. The report
fails if a promise is broken anywhere, if too little was delivered, if nobody joined with the queues
of another, if a kind of fault hardly occurred, or if a planted bug survived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

from rich.table import Table

from concordant.order.merging.records import Begun, Opened
from concordant.sim.merging_cases import MODES, Played, play, random_case
from concordant.sim.merging_oracle import failure
from tests.campaign.shape import Options, Report
from tests.detection.merging_bugs import BUGS, CASE_COUNT_MAX, cases_to_find

NAME = "merging"

CASE_COUNT = 7_000
"""Per mode, for as many cases as a campaign has by default; fewer cases, fewer of these."""
DELIVERING_SHARE_MIN = 0.5
FAULTS = ("loss", "duplication", "reordering", "crash")
OCCURRED_SHARE_MIN = 0.1
_CHUNK = 50
_SHOWN_MAX = 3


@dataclass
class Tally:
    """What happened in some cases of one mode."""

    mode: str
    case_count: int = 0
    step_count: int = 0
    relation_count: int = 0
    delivering_count: int = 0
    session_count: int = 0
    copied_count: int = 0
    """Sessions that began with the queues of another subscriber."""
    faults: Counter[str] = field(default_factory=Counter)
    failed: dict[int, str] = field(default_factory=dict)

    def add(self, other: Tally) -> None:
        self.case_count += other.case_count
        self.step_count += other.step_count
        self.relation_count += other.relation_count
        self.delivering_count += other.delivering_count
        self.session_count += other.session_count
        self.copied_count += other.copied_count
        self.faults += other.faults
        self.failed |= other.failed


def tally(mode: str, seeds: range) -> Tally:
    """Play the cases of these seeds."""
    found = Tally(mode)
    for seed in seeds:
        played = play(random_case(seed, mode))
        broken = failure(played)
        relations = sum(row.step == "deliver" for row in played.recorder.rows())
        found.case_count += 1
        found.step_count += played.world.step_count
        found.relation_count += relations
        found.delivering_count += bool(relations)
        _count_sessions(played, found)
        kinds = (name.removeprefix("fault ") for name in played.recorder.counts)
        found.faults.update(kind for kind in kinds if kind in FAULTS)
        if broken is not None:
            found.failed[seed] = str(broken)
    return found


def _count_sessions(played: Played, found: Tally) -> None:
    for client in played.case.subscribes:
        for record in played.world.places[client].log:
            found.session_count += isinstance(record, Opened)
            found.copied_count += isinstance(record, Begun) and bool(record.queues)


def cases_for(number: int) -> int | None:
    """How many cases it takes to find the planted bug of a number: bugs cannot be pickled."""
    return cases_to_find(BUGS[number])


def run(options: Options) -> Report:
    """All modes, then the planted bugs."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    count = max(1, options.case_count * CASE_COUNT // Options.case_count)
    seeds = range((options.seed - 1) * count, options.seed * count)
    tallies = {mode: Tally(mode) for mode in MODES}
    done = 0
    with ProcessPoolExecutor(options.job_count, mp_context=get_context("spawn")) as pool:
        chunks = [
            (mode, seeds[start : start + _CHUNK])
            for mode in MODES
            for start in range(0, count, _CHUNK)
        ]
        work = [pool.submit(tally, *chunk) for chunk in chunks]
        for one in as_completed(work):
            part = one.result()
            tallies[part.mode].add(part)
            done += part.case_count
            options.progress("cases", done, count * len(MODES))
        # A short campaign has no time to look for what is rare: the tests play those cases.
        whole = options.case_count >= Options.case_count
        caught = list(pool.map(cases_for, range(len(BUGS)))) if whole else []
    report.tables.append(_table(tallies))
    if whole:
        report.tables.append(_bugs_table(caught))
    report.failures += _failures(tallies, caught)
    return report


def _failures(tallies: dict[str, Tally], caught: list[int | None]) -> Iterator[str]:
    for mode, one in tallies.items():
        if one.failed:
            yield f"{mode}: {len(one.failed)} of {one.case_count} cases broke a promise"
        for seed in sorted(one.failed)[:_SHOWN_MAX]:
            yield f"{mode}, seed {seed}: {one.failed[seed]}"
        if one.delivering_count < DELIVERING_SHARE_MIN * one.case_count:
            yield f"{mode}: {one.delivering_count} of {one.case_count} cases delivered anything"
        if mode != "static" and one.case_count >= _CHUNK and not one.copied_count:
            yield f"{mode}: nobody joined with the queues of another"
        for kind in FAULTS:
            if one.faults[kind] < OCCURRED_SHARE_MIN * one.case_count:
                yield f"{mode}: {kind} occurred in {one.faults[kind]} of {one.case_count} cases"
    for which, cases in zip(BUGS, caught, strict=False):
        if cases is None:
            yield f"planted bug survived {CASE_COUNT_MAX} cases: {which.name}"


def _table(tallies: dict[str, Tally]) -> Table:
    names = ("cases", "broke a promise", "relations", "sessions", "joined by a copy", "steps")
    table = Table("mode", *names, *(f"{kind} %" for kind in FAULTS))
    for mode, one in tallies.items():
        numbers = (
            one.case_count,
            len(one.failed),
            one.relation_count,
            one.session_count,
            one.copied_count,
            one.step_count,
        )
        shares = (f"{100 * one.faults[kind] / one.case_count:.0f}" for kind in FAULTS)
        table.add_row(mode, *(f"{number:,}" for number in numbers), *shares)
    return table


def _bugs_table(caught: list[int | None]) -> Table:
    table = Table("planted bug", "mode", "found after cases")
    for which, cases in zip(BUGS, caught, strict=True):
        table.add_row(which.name, which.mode, "SURVIVED" if cases is None else str(cases))
    return table
