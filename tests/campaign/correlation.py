"""The kernel, the clear engine and the oracle over all policies, and planted bugs against both.

Each case is given to all three, so that the oracle runs once. Cases are numbered per policy, so
every policy gets the same number of them. The report fails if kernel, engine and oracle differ
anywhere, if the cases were too easy (too few that deliver, too few of a policy, a feature that
never occurred), or if a planted bug survived.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context

from rich.table import Table

from concordant.model.subscription import QUEUED_COUNT_MAX, Policy
from tests.campaign import kernel
from tests.campaign.compare import (
    case_of,
    cuts_of_case,
    difference,
    oracle_relations,
    plan_of,
    shrink,
    written,
)
from tests.campaign.kernel import differs, places_of_case, summaries
from tests.campaign.shape import Options, Report
from tests.detection.bugs import BUGS as ENGINE_BUGS
from tests.detection.bugs import CASE_COUNT_MAX, cases_to_find, engine_difference
from tests.detection.kernel_bugs import BUGS as KERNEL_BUGS
from tests.detection.kernel_bugs import kernel_difference
from tests.generators import ALL_POLICIES, Case

NAME = "correlation"

FULL_CASE_COUNT = 100_000
"""Thresholds are meant for as many cases; below, they shrink with the number."""
POLICY_CASE_COUNT_MIN = 5_000
"""Per matching and consumption, `staged` counted with it."""
DELIVERING_SHARE_MIN = 0.6

FEATURES = (
    "partition",
    "within",
    "cap",
    "cap all",
    "emit",
    "staged",
    "contiguous",
    "disjunction",
    "nulls",
)

BUGS = [
    *((f"engine: {bug.name}", bug, engine_difference) for bug in ENGINE_BUGS),
    *((f"kernel: {bug.name}", bug, kernel_difference) for bug in KERNEL_BUGS),
]

_CHUNK = 100
_SHOWN_MAX = 3
"""Differences that are shrunk and printed; the others are only counted."""


@dataclass
class Tally:
    """What happened in some cases of one policy."""

    policy: Policy
    case_count: int = 0
    delivering_count: int = 0
    relation_count: int = 0
    features: Counter[str] = field(default_factory=Counter)
    different: list[int] = field(default_factory=list)
    """Numbers of the cases in which kernel, engine and oracle differ."""

    def add(self, other: Tally) -> None:
        self.case_count += other.case_count
        self.delivering_count += other.delivering_count
        self.relation_count += other.relation_count
        self.features += other.features
        self.different += other.different


def features_of(case: Case) -> Iterator[str]:
    """Which features a case has; `staged` only if a conjunction really falls into parts."""
    asked = case.subscriptions
    if any(one.partition_by for one in asked):
        yield "partition"
    if any(one.within_us is not None for one in asked):
        yield "within"
    if any(one.queue_count_max is not None for one in asked):
        yield "cap"
    if any(one.queued_count_max != QUEUED_COUNT_MAX for one in asked):
        yield "cap all"
    if any(one.emit is not None for one in asked):
        yield "emit"
    if any(one.policy.staged for one in asked) and any(
        len(conjunction.parts) > 1
        for one in plan_of(case).subscriptions
        for conjunction in one.conjunctions
    ):
        yield "staged"
    if any(
        one.policy.contiguous and max(c.instances.values()) > 1
        for one in asked
        for c in one.conjunctions
    ):
        yield "contiguous"
    if any(len(one.conjunctions) > 1 for one in asked):
        yield "disjunction"
    kinds = {topic.name: topic.attributes for topic in case.topics}
    if any(e.attributes.get(name) is None for e in case.events for name in kinds[e.topic]):
        yield "nulls"


def tally(seed: int, policy: Policy, numbers: range) -> Tally:
    """Try the cases of these numbers."""
    found = Tally(policy)
    for number in numbers:
        case = case_of(seed, policy, number)
        expected = oracle_relations(case)
        if (
            difference(case, cuts_of_case(seed, policy, number, case), written(expected))
            is not None
            or kernel.difference(
                case, places_of_case(seed, policy, number, case), summaries(expected)
            )
            is not None
        ):
            found.different.append(number)
        found.case_count += 1
        found.delivering_count += bool(expected)
        found.relation_count += len(expected)
        found.features.update(features_of(case))
    return found


def _hunt(index: int) -> int | None:
    # On the same cases whatever the seed, as in tests/detection: the rarest bugs need a thousand
    # cases of some seeds, and a campaign must not fail by bad luck.
    _, bug, compared = BUGS[index]
    return cases_to_find(bug, compared=compared)


def run(options: Options) -> Report:
    """Search, or replay one case."""
    report = Report(NAME)
    policies = ALL_POLICIES if options.policy is None else (options.policy,)
    if options.case is not None:
        for policy in policies:
            _replay(report, options.seed, policy, options.case)
        return report
    spawned = get_context("spawn")
    with ProcessPoolExecutor(options.job_count, mp_context=spawned) as pool:
        tallies = _search(pool, options, policies)
        taken = _bugs(pool, options, report)
    report.tables += [_policy_table(tallies), _feature_table(tallies), _bug_table(taken)]
    _judge(report, options, tallies)
    survivors = [BUGS[i][0] for i, count in taken.items() if count is None]
    report.failures += [f"'{name}' survived {CASE_COUNT_MAX} cases" for name in survivors]
    return report


def _search(
    pool: ProcessPoolExecutor, options: Options, policies: tuple[Policy, ...]
) -> dict[Policy, Tally]:
    per_policy = math.ceil(options.case_count / len(policies))
    tallies = {policy: Tally(policy) for policy in policies}
    jobs = [
        pool.submit(tally, options.seed, policy, range(start, min(start + _CHUNK, per_policy)))
        for start in range(0, per_policy, _CHUNK)
        for policy in policies
    ]
    done = 0
    for job in as_completed(jobs):
        part = job.result()
        tallies[part.policy].add(part)
        done += part.case_count
        options.progress("cases", done, per_policy * len(policies))
    return tallies


def _bugs(pool: ProcessPoolExecutor, options: Options, report: Report) -> dict[int, int | None]:
    """Cases that each planted bug took, by its index; one that cannot be planted is a failure."""
    taken: dict[int, int | None] = {}
    hunts = {pool.submit(_hunt, index): index for index in range(len(BUGS))}
    for done, job in enumerate(as_completed(hunts), start=1):
        error = job.exception()
        if error is None:
            taken[hunts[job]] = job.result()
        else:
            report.failures.append(f"'{BUGS[hunts[job]][0]}' could not be planted: {error!r}")
        options.progress("planted bugs", done, len(BUGS))
    return dict(sorted(taken.items()))


# --- what is wrong --------------------------------------------------------------------------------


def _judge(report: Report, options: Options, tallies: dict[Policy, Tally]) -> None:
    total = _sum(tallies)
    different = [(one.policy, number) for one in tallies.values() for number in one.different]
    if different:
        report.failures.append(f"kernel, engine and oracle differ in {len(different)} cases")
    for policy, number in different[:_SHOWN_MAX]:
        _replay(report, options.seed, policy, number)
    if total.delivering_count < DELIVERING_SHARE_MIN * total.case_count:
        report.failures.append(
            f"{total.delivering_count} of {total.case_count} cases delivered, "
            f"and {DELIVERING_SHARE_MIN:.0%} are asked for"
        )
    if options.policy is not None:
        report.notes.append("one policy only: cases per policy and features are not judged")
        return
    scale = min(1.0, options.case_count / FULL_CASE_COUNT)
    least = math.floor(POLICY_CASE_COUNT_MIN * scale)
    if scale < 1:
        report.notes.append(
            f"{options.case_count} cases are fewer than {FULL_CASE_COUNT}: {least} cases per "
            f"matching and consumption are asked for instead of {POLICY_CASE_COUNT_MIN}"
        )
    counts: Counter[str] = Counter()
    for one in tallies.values():
        counts[_unstaged(one.policy)] += one.case_count
    report.failures += [
        f"'{policy}' had {count} cases, and {least} are asked for"
        for policy, count in counts.items()
        if count < least
    ]
    report.failures += [
        f"no case had the feature '{name}'" for name in FEATURES if not total.features[name]
    ]


def _unstaged(policy: Policy) -> str:
    return str(Policy(policy.match, policy.contiguous, False, policy.consume))


def _replay(report: Report, seed: int, policy: Policy, number: int) -> None:
    """Try one case again; say how it differs, in its smallest form."""
    case = case_of(seed, policy, number)
    cuts = cuts_of_case(seed, policy, number, case) | places_of_case(seed, policy, number, case)
    if differs(case, cuts) is None:
        report.notes.append(
            f"seed {seed}, '{policy}', case {number}: kernel, engine and oracle agree"
        )
        return
    small = shrink(case, cuts, differs)
    report.failures.append(
        f"seed {seed}, '{policy}', case {number} differs {small.difference}\n"
        f"smallest form ({len(small.case.events)} of {len(case.events)} events, "
        f"cut: {', '.join(sorted(small.cuts)) or 'nowhere'}; an id alone is where the engine's "
        f"state was saved):\n{small.case}\n"
        f"again: python -m tests.campaign --only {NAME} --seed {seed} "
        f'--policy "{policy}" --case {number}'
    )


# --- tables ---------------------------------------------------------------------------------------


def _sum(tallies: dict[Policy, Tally]) -> Tally:
    total = Tally(Policy())
    for one in tallies.values():
        total.add(one)
    return total


def _policy_table(tallies: dict[Policy, Tally]) -> Table:
    table = Table("policy", title="kernel and engine against oracle")
    for heading in ("cases", "delivered", "relations", "different"):
        table.add_column(heading, justify="right")

    def row(name: str, one: Tally) -> None:
        counts = (one.case_count, one.delivering_count, one.relation_count, len(one.different))
        table.add_row(name, *(f"{count:,}" for count in counts))

    for one in tallies.values():
        row(str(one.policy), one)
    table.add_section()
    row("all", _sum(tallies))
    return table


def _feature_table(tallies: dict[Policy, Tally]) -> Table:
    table = Table("feature", title="what occurred")
    table.add_column("cases", justify="right")
    total = _sum(tallies)
    for name in FEATURES:
        table.add_row(name, f"{total.features[name]:,}")
    return table


def _bug_table(taken: dict[int, int | None]) -> Table:
    table = Table("planted bug", title="cases until it was found")
    table.add_column("cases", justify="right")
    for index, count in taken.items():
        table.add_row(BUGS[index][0], "survived" if count is None else f"{count:,}")
    return table
