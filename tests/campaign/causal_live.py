"""A broker killed with SIGKILL while a subscriber moves away from it, over TCP, again and again.

By turns the node comes back before anybody misses it, and after the others hold it for dead. No
effect may come before its cause, nothing twice, and nothing may be missing that was not told as a
gap.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from random import Random

from rich.table import Table

from tests.campaign.shape import Options, Report
from tests.network.causal_moves import Said, run_move

NAME = "causal-live"

REPETITION_COUNT = 20
"""For as many cases as a campaign has by default; fewer cases, fewer repetitions."""


def run(options: Options) -> Report:
    """Repetitions one after the other: each has processes of its own."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    count = max(2, options.case_count * REPETITION_COUNT // Options.case_count)
    found: dict[bool, list[Said]] = {True: [], False: []}
    for number in range(count):
        returns = number % 2 == 0
        with tempfile.TemporaryDirectory() as folder:
            try:
                rng = Random(f"{options.seed}/{number}")
                said = asyncio.run(run_move(Path(folder), rng=rng, returns=returns))
            except (AssertionError, TimeoutError) as error:
                said = Said(wrong=[f"{type(error).__name__}: {error}"])
        found[returns].append(said)
        report.failures += [f"repetition {number}: {wrong}" for wrong in said.wrong]
        options.progress("repetitions", number + 1, count)
    report.tables.append(_table(found))
    if any(not one.checked.get("Causal") for all_said in found.values() for one in all_said):
        report.failures.append("a repetition had no cause and effect to look at")
    return report


def _table(found: dict[bool, list[Said]]) -> Table:
    names = ("repetitions", "published", "delivered", "gaps", "lost", "wrong")
    table = Table("the killed node", *names)
    for returns, all_said in found.items():
        numbers = (
            len(all_said),
            sum(said.published_count for said in all_said),
            sum(said.delivered_count for said in all_said),
            sum(said.gap_count for said in all_said),
            sum(said.lost_count for said in all_said),
            sum(len(said.wrong) for said in all_said),
        )
        table.add_row("is back" if returns else "is dead", *(f"{one:,}" for one in numbers))
    return table
