"""Brokers and nodes over TCP, killed with SIGKILL during transactions, again and again.

Each repetition has three processes with logs on a real disk and fsync, some transactions at a time,
and kills at random moments. Two of three have brokers: instances are dispatched, and at the end
every one must be where the outcome of its transaction says, and its step delivered once or not at
all. The third has nodes, and sales by the bus: subscribers of the total order must read all of what
was committed, once and in order, and nothing else.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from random import Random
from typing import get_args

from rich.table import Table

from concordant.transact.actions import Kind
from tests.campaign.shape import Options, Report
from tests.network.dispatching import Said, run_dispatching
from tests.network.selling import run_selling

NAME = "transactions-live"

REPETITION_COUNT = 153
"""For as many cases as a campaign has by default; fewer cases, fewer repetitions."""
INSTANCE_COUNT = 24
SALE_COUNT = 12
"""Of each of two shops."""
KILL_COUNT = 4
WAYS = ("brokers", "brokers", "bus")
KINDS: tuple[Kind, ...] = get_args(Kind)


def run(options: Options) -> Report:
    """Repetitions of all kinds by turns, one after the other: each has processes of its own."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    case_count = len(KINDS) * len(WAYS)
    count = max(case_count, options.case_count * REPETITION_COUNT // Options.case_count)
    found: dict[tuple[Kind, str], list[Said]] = {
        (kind, way): [] for way in dict.fromkeys(WAYS) for kind in KINDS
    }
    for number in range(count):
        kind, way = KINDS[number % len(KINDS)], WAYS[number // len(KINDS) % len(WAYS)]
        found[kind, way].append(_repetition(kind, way, Random(f"{options.seed}/{number}")))
        options.progress("repetitions", number + 1, count)
    report.tables.append(_table(found))
    for (kind, way), all_said in found.items():
        for number, said in enumerate(all_said):
            report.failures += [f"{kind}, {way}, {number}: {wrong}" for wrong in said.wrong]
        if not sum(said.committed_count for said in all_said):
            report.failures.append(f"{kind}, {way}: nothing was committed")
    return report


def _repetition(kind: Kind, way: str, rng: Random) -> Said:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        if way == "bus":
            work = run_selling(kind, path, rng=rng, count=SALE_COUNT, kill_count=KILL_COUNT)
        else:
            work = run_dispatching(kind, path, rng=rng, count=INSTANCE_COUNT, kill_count=KILL_COUNT)
        try:
            return asyncio.run(work)
        except (AssertionError, TimeoutError) as error:
            return Said(wrong=[f"{type(error).__name__}: {error}"])


def _table(found: dict[tuple[Kind, str], list[Said]]) -> Table:
    table = Table("transactions", "by", "repetitions", "kills", "commits", "aborts", "wrong")
    for (kind, way), all_said in found.items():
        numbers = (
            len(all_said),
            sum(said.killed_count for said in all_said),
            sum(said.committed_count for said in all_said),
            sum(said.aborted_count for said in all_said),
            sum(len(said.wrong) for said in all_said),
        )
        table.add_row(kind, way, *(f"{number:,}" for number in numbers))
    return table
