"""Brokers over TCP, killed with SIGKILL while instances are dispatched, again and again.

Each repetition has three broker processes with logs on a real disk and fsync, four clients, some
transactions at a time, and kills at random moments. At the end every instance must be where the
outcome of its transaction says, and its step delivered once or not at all.
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

NAME = "transactions-live"

REPETITION_COUNT = 102
"""For as many cases as a campaign has by default; fewer cases, fewer repetitions."""
INSTANCE_COUNT = 24
KILL_COUNT = 4
KINDS: tuple[Kind, ...] = get_args(Kind)


def run(options: Options) -> Report:
    """Repetitions of all kinds by turns, one after the other: each has processes of its own."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    count = max(len(KINDS), options.case_count * REPETITION_COUNT // Options.case_count)
    found: dict[Kind, list[Said]] = {kind: [] for kind in KINDS}
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        rng = Random(f"{options.seed}/{number}")
        with tempfile.TemporaryDirectory() as folder:
            try:
                said = asyncio.run(
                    run_dispatching(
                        kind,
                        Path(folder),
                        rng=rng,
                        count=INSTANCE_COUNT,
                        kill_count=KILL_COUNT,
                    )
                )
            except (AssertionError, TimeoutError) as error:
                said = Said(wrong=[f"{type(error).__name__}: {error}"])
        found[kind].append(said)
        options.progress("repetitions", number + 1, count)
    report.tables.append(_table(found))
    for kind, all_said in found.items():
        for number, said in enumerate(all_said):
            report.failures += [f"{kind}, repetition {number}: {wrong}" for wrong in said.wrong]
        if not sum(said.committed_count for said in all_said):
            report.failures.append(f"{kind}: nothing was committed")
    return report


def _table(found: dict[Kind, list[Said]]) -> Table:
    table = Table("transactions", "repetitions", "kills", "commits", "aborts", "wrong")
    for kind, all_said in found.items():
        numbers = (
            len(all_said),
            sum(said.killed_count for said in all_said),
            sum(said.committed_count for said in all_said),
            sum(said.aborted_count for said in all_said),
            sum(len(said.wrong) for said in all_said),
        )
        table.add_row(kind, *(f"{number:,}" for number in numbers))
    return table
