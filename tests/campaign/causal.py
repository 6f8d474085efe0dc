"""Drawn cases of causal delivery, both profiles, one home and two, and the planted bugs.

The report fails if one of I1 to I11 is broken anywhere, if a kind of fault occurred in too few of
the cases that are for it, if too little was delivered, if nobody ever moved, had a gap or lost an
event, or if a planted bug survived. A failing case is printed as small as it can be made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from multiprocessing import get_context
from typing import Literal

import msgspec
from rich.table import Table

from concordant.causal.options import Profile
from concordant.sim.causal import Case, play
from concordant.sim.causal_cases import MIXES, Mix, drawn, minimised
from tests.campaign.shape import Options, Report
from tests.detection.causal_bugs import BUGS, CASE_COUNT_MAX, cases_to_find

NAME = "causal"

Kind = tuple[Profile | Literal["total"], Mix]
"""`total`: the profile `rounds`, with clients that want one order for all."""

_OTHERS = tuple(mix for mix in MIXES if mix != "two-homes")

CASES: dict[Kind, int] = {
    **{("local", mix): 3_200 for mix in _OTHERS},
    **{("rounds", mix): 3_200 for mix in _OTHERS},
    **{("total", mix): 2_000 for mix in _OTHERS},
    ("local", "two-homes"): 50_000,
}
"""Per profile and mix, for as many cases as a campaign has by default: 100,400 together. The rare
errors of earlier drafts were all with two homes."""

EXPECTED: dict[str, tuple[Mix, ...]] = {
    "crash": ("crash",),
    "death": ("crash", "suspicion", "late"),
    "suspicion": ("suspicion", "late"),
    "pause": ("suspicion",),
    "moved": ("migration", "two-homes"),
    "joined": ("migration",),
    "two homes": ("two-homes",),
    "loss": MIXES,
    "duplication": MIXES,
    "reordering": MIXES,
}
OCCURRED_SHARE_MIN = 0.2
"""Of the cases for which something is expected."""
DELIVERING_SHARE_MIN = 0.9
_CHUNK = 50
_SHOWN_MAX = 2


@dataclass
class Tally:
    """What happened in some cases of one kind."""

    kind: Kind
    case_count: int = 0
    step_count: int = 0
    ordered_count: int = 0
    delivery_count: int = 0
    delivering_count: int = 0
    gap_count: int = 0
    lost_count: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    occurred: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("case", "step", "ordered", "delivery", "delivering", "gap", "lost"):
            name += "_count"
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.checked += other.checked
        self.occurred += other.occurred
        self.failed += other.failed


def case_of(kind: Kind, seed: int) -> Case:
    """A case of a kind; its seed names everything."""
    profile, mix = kind
    if profile == "total":
        return msgspec.structs.replace(drawn(seed, profile="rounds", mix=mix), total=True)
    return drawn(seed, profile=profile, mix=mix)


def tally(kind: Kind, seeds: range) -> Tally:
    """Play the cases of these seeds."""
    found = Tally(kind)
    for seed in seeds:
        case = case_of(kind, seed)
        outcome = play(case, seed=seed)
        seen = outcome.seen
        delivered = sum(len(one) for one in seen.upcalls.values())
        found.case_count += 1
        found.step_count += outcome.step_count
        found.ordered_count += len(seen.facts)
        found.delivery_count += delivered
        found.delivering_count += bool(delivered)
        found.gap_count += sum(seen.gaps.values())
        found.lost_count += len(seen.lost)
        found.checked.update({one.name: one.checked for one in outcome.verdicts})
        happened = {name.removeprefix("fault ") for name in outcome.recorder.counts}
        happened |= {"moved"} if any(one.migrate for one in case.acts) else set()
        happened |= {"joined"} if any(one.subscribe for one in case.acts) else set()
        happened |= {"death"} if len(seen.brokers) < len(case.brokers) else set()
        several = any(len(one.homes) > 1 for one in seen.subscribers.values())
        happened |= {"two homes"} if several else set()
        found.occurred.update(happened)
        if outcome.failure is not None:
            found.failed.append(seed)
    return found


def cases_for(number: int) -> int | None:
    """How many cases it takes to find the planted bug of a number: bugs cannot be pickled."""
    return cases_to_find(BUGS[number])


def run(options: Options) -> Report:
    """All kinds of cases, then the planted bugs."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    tallies = {kind: Tally(kind) for kind in CASES}
    chunks: list[tuple[Kind, range]] = []
    for kind, whole in CASES.items():
        count = max(1, options.case_count * whole // Options.case_count)
        seeds = range((options.seed - 1) * count, options.seed * count)
        chunks += [(kind, seeds[start : start + _CHUNK]) for start in range(0, count, _CHUNK)]
    total = sum(len(seeds) for _, seeds in chunks)
    done = 0
    with ProcessPoolExecutor(options.job_count, mp_context=get_context("spawn")) as pool:
        work = [pool.submit(tally, *chunk) for chunk in chunks]
        for one in as_completed(work):
            part = one.result()
            tallies[part.kind].add(part)
            done += part.case_count
            options.progress("cases", done, total)
        caught = list(pool.map(cases_for, range(len(BUGS))))
    options.progress("planted bugs", len(BUGS), len(BUGS))
    report.tables += [_cases_table(tallies), _checks_table(tallies), _bugs_table(caught)]
    report.failures += _failures(tallies, caught)
    return report


def _failures(tallies: dict[Kind, Tally], caught: list[int | None]) -> Iterator[str]:
    for (profile, mix), one in tallies.items():
        name = f"{profile}, {mix}"
        if one.failed:
            yield f"{name}: {len(one.failed)} of {one.case_count} cases broke a promise"
        for seed in sorted(one.failed)[:_SHOWN_MAX]:
            case = case_of((profile, mix), seed)
            failure = play(case, seed=seed).failure
            smallest = msgspec.json.encode(minimised(case, seed)).decode()
            yield f"{name}, seed {seed}: {failure}\nthe smallest case found: {smallest}"
        if one.delivering_count < DELIVERING_SHARE_MIN * one.case_count:
            yield f"{name}: only {one.delivering_count} of {one.case_count} delivered anything"
        for what, mixes in EXPECTED.items():
            if mix in mixes and one.occurred[what] < OCCURRED_SHARE_MIN * one.case_count:
                yield f"{name}: {what} in {one.occurred[what]} of {one.case_count} cases only"
    if sum(one.case_count for one in tallies.values()) > 1_000:
        if not sum(one.gap_count for one in tallies.values()):
            yield "nobody was ever told of a gap"
        if not sum(one.lost_count for one in tallies.values()):
            yield "no event was ever lost with its broker"
    for which, cases in zip(BUGS, caught, strict=True):
        if cases is None:
            yield f"planted bug survived {CASE_COUNT_MAX} cases: {which.name}"


def _cases_table(tallies: dict[Kind, Tally]) -> Table:
    names = ("cases", "broken", "ordered", "delivered", "gaps", "lost", "died", "moved", "steps")
    table = Table("profile, mix", *names)
    for (profile, mix), one in tallies.items():
        numbers = (
            one.case_count,
            len(one.failed),
            one.ordered_count,
            one.delivery_count,
            one.gap_count,
            one.lost_count,
            one.occurred["death"],
            one.occurred["moved"],
            one.step_count,
        )
        table.add_row(f"{profile}, {mix}", *(f"{number:,}" for number in numbers))
    return table


def _checks_table(tallies: dict[Kind, Tally]) -> Table:
    checked: Counter[str] = Counter()
    for one in tallies.values():
        checked += one.checked
    table = Table("property", "times that it had something to say")
    for name, count in checked.items():
        table.add_row(name, f"{count:,}")
    return table


def _bugs_table(caught: list[int | None]) -> Table:
    table = Table("planted bug", "profile, mix", "found after cases")
    for which, cases in zip(BUGS, caught, strict=True):
        where = f"{which.profile}, {which.mix}"
        table.add_row(which.name, where, "SURVIVED" if cases is None else str(cases))
    return table
