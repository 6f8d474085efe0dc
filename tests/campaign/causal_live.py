"""A broker killed with SIGKILL while a subscriber moves away from it, over TCP, again and again.

By turns the node comes back before anybody misses it, and after the others hold it for dead. No
effect may come before its cause, nothing twice, and nothing may be missing that was not told as a
gap.
"""

from __future__ import annotations

import asyncio
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from random import Random

from rich.table import Table

from tests.campaign.shape import Options, Report
from tests.network.causal_moves import Said, run_move

NAME = "causal-live"

REPETITION_COUNT = 20
"""For as many cases as a campaign has by default; fewer cases, fewer repetitions."""


def run(options: Options) -> Report:
    """Repetitions, two at a time: each has processes of its own, which mostly wait."""
    report = Report(NAME)
    if options.case is not None or options.policy is not None:
        return report  # a replay of one case of another campaign
    count = max(2, options.case_count * REPETITION_COUNT // Options.case_count)
    found: dict[bool, list[Said]] = {True: [], False: []}
    with ThreadPoolExecutor(min(2, options.job_count)) as pool:
        work = {pool.submit(_repeat, options.seed, number): number for number in range(count)}
        for done, future in enumerate(as_completed(work), 1):
            number, said = work[future], future.result()
            found[_returns(number)].append(said)
            report.failures += [f"repetition {number}: {wrong}" for wrong in said.wrong]
            options.progress("repetitions", done, count)
    report.tables.append(_table(found))
    if any(not one.checked.get("Causal") for all_said in found.values() for one in all_said):
        report.failures.append("a repetition had no cause and effect to look at")
    return report


def _returns(number: int) -> bool:
    return number % 2 == 0


def _repeat(seed: int, number: int) -> Said:
    with tempfile.TemporaryDirectory() as folder:
        rng = Random(f"{seed}/{number}")
        try:
            return asyncio.run(run_move(Path(folder), rng=rng, returns=_returns(number)))
        except (AssertionError, TimeoutError) as error:
            return Said(wrong=[f"{type(error).__name__}: {error}"])


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
