"""Random cases of total notification order under random schedules, and the planted bugs.

Every seed is a case of its own: topics and overlaps, one of the two promises, subscriptions that
change, rankings that change, nodes that crash, messages that are lost and doubled, deliveries that
do not wait for ever. The report fails if a promise is broken anywhere, if a feature occurred too
rarely, or if a planted bug survived. A failing seed is printed with its case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

from rich.table import Table

from tests.campaign.shape import Options, Report
from tests.detection.sequencing_bugs import BUGS, SCHEDULE_COUNT_MAX, schedules_to_find
from tests.sequencing_cases import Case, Played, play, random_case

NAME = "sequencing"

SCHEDULE_COUNT = 100_000
"""For as many cases as a campaign has by default; fewer cases, fewer schedules."""
SHARE_MIN = 0.1
"""Of the schedules in which a feature really occurred."""
_CHUNK = 250
_SHOWN_MAX = 3

FEATURES = (
    "topics held together",
    "one order over whole histories",
    "subscriptions changed",
    "a sequencer crashed",
    "a client crashed",
    "messages lost",
    "messages doubled",
    "ranking changed",
    "log written anew",
    "delivered out of order",
    "stamped in parallel",
    "a lease ended",
    "clients' logs written anew",
    "published in batches",
)


RARE = (FEATURES[11],)
RARE_SHARE_MIN = 0.005


@dataclass
class Tally:
    """What happened in some schedules."""

    run_count: int = 0
    delivery_count: int = 0
    features: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.run_count += other.run_count
        self.delivery_count += other.delivery_count
        self.features += other.features
        self.failed += other.failed


def features_of(case: Case, played: Played) -> Iterator[str]:
    """What really happened, not what was asked for."""
    rows, counts = played.rows, played.world.recorder.counts
    yield FEATURES[1] if case.edge_on == 1 else FEATURES[0]
    if case.changes and any(r.step in ("subscribe", "unsubscribe") and r.time_us for r in rows):
        yield FEATURES[2]
    crashed = {row.process for row in rows if row.step == "crash"}
    if any(one.startswith("sequencer") for one in crashed):
        yield FEATURES[3]
    if any(one[0] in "ps" and not one.startswith("sequencer") for one in crashed):
        yield FEATURES[4]
    if counts["fault loss"]:
        yield FEATURES[5]
    if counts["fault duplication"]:
        yield FEATURES[6]
    if case.reranks and played.ranking != case.topics:
        yield FEATURES[7]
    if case.options.log_count_max < 10:
        yield FEATURES[8]
    if any(row.step == "deliver" and not row.in_order for row in rows):
        yield FEATURES[9]
    if case.stamped:
        yield FEATURES[10]
    if played.forgotten_count:
        yield FEATURES[11]
    if played.snapshot_count:
        yield FEATURES[12]
    if sum(row.step == "publish" for row in rows) > len(case.events):
        yield FEATURES[13]


def tally(seeds: range) -> Tally:
    """Play the cases of these seeds."""
    found = Tally()
    for seed in seeds:
        case = random_case(seed)
        played = play(case, seed)
        found.run_count += 1
        found.delivery_count += sum(row.step == "deliver" for row in played.rows)
        found.features.update(features_of(case, played))
        if played.failure is not None:
            found.failed.append(seed)
    return found


def schedules_for(number: int) -> int | None:
    """How many schedules it takes to find the planted bug of a number: bugs cannot be pickled."""
    return schedules_to_find(BUGS[number])


def run(options: Options) -> Report:
    """All schedules, then the planted bugs."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    count = max(1, options.case_count * SCHEDULE_COUNT // Options.case_count)
    seeds = range((options.seed - 1) * count, options.seed * count)
    whole = Tally()
    with ProcessPoolExecutor(options.job_count, mp_context=get_context("spawn")) as pool:
        chunks = [seeds[start : start + _CHUNK] for start in range(0, count, _CHUNK)]
        for one in as_completed([pool.submit(tally, chunk) for chunk in chunks]):
            whole.add(one.result())
            options.progress("schedules", whole.run_count, count)
        caught = list(pool.map(schedules_for, range(len(BUGS))))
    options.progress("planted bugs", len(BUGS), len(BUGS))
    report.tables += [_schedules_table(whole), _bugs_table(caught)]
    report.failures += _failures(whole, caught)
    return report


def _failures(whole: Tally, caught: list[int | None]) -> Iterator[str]:
    if whole.failed:
        yield f"{len(whole.failed)} of {whole.run_count} schedules broke a promise"
    for seed in sorted(whole.failed)[:_SHOWN_MAX]:
        case = random_case(seed)
        yield f"seed {seed}: {play(case, seed).failure}\n{case}"
    if whole.run_count >= 1_000:
        for feature in FEATURES:
            share = RARE_SHARE_MIN if feature in RARE else SHARE_MIN
            if whole.features[feature] < share * whole.run_count:
                count = whole.features[feature]
                yield f"{feature}: in {count} of {whole.run_count} schedules only"
    for which, count in zip(BUGS, caught, strict=True):
        if count is None:
            yield f"planted bug survived {SCHEDULE_COUNT_MAX} schedules: {which.name}"


def _schedules_table(whole: Tally) -> Table:
    table = Table("total notification order", "schedules")
    table.add_row("all", f"{whole.run_count:,}")
    table.add_row("broke a promise", f"{len(whole.failed):,}")
    table.add_row("deliveries", f"{whole.delivery_count:,}")
    for feature in FEATURES:
        table.add_row(feature, f"{whole.features[feature]:,}")
    return table


def _bugs_table(caught: list[int | None]) -> Table:
    table = Table("planted bug", "found after schedules")
    for which, count in zip(BUGS, caught, strict=True):
        table.add_row(which.name, "SURVIVED" if count is None else str(count))
    return table
