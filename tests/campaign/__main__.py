"""Run the campaigns: `python -m tests.campaign [--cases N] [--seed S] [--jobs N] [--only NAME]`.

Exit code 0 if all passed, 1 if one failed. One case is replayed by `--seed`, `--policy`, `--case`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from concordant.sim.protocols import PROTOCOLS
from tests.campaign import (
    broadcast,
    causal,
    causal_live,
    correlation,
    guarantees,
    merging,
    merging_live,
    network,
    sequencing,
    simulation,
    spark_cluster,
    spark_core,
    spark_crash,
    spark_files,
    spark_kafka,
    spark_load,
    transactions,
    transactions_live,
)
from tests.campaign.shape import Options, Report
from tests.generators import ALL_POLICIES

CAMPAIGNS: dict[str, Callable[[Options], Report]] = {
    broadcast.NAME: broadcast.run,
    causal.NAME: causal.run,
    causal_live.NAME: causal_live.run,
    correlation.NAME: correlation.run,
    guarantees.NAME: guarantees.run,
    merging.NAME: merging.run,
    merging_live.NAME: merging_live.run,
    network.NAME: network.run,
    sequencing.NAME: sequencing.run,
    simulation.NAME: simulation.run,
    spark_cluster.NAME: spark_cluster.run,
    spark_core.NAME: spark_core.run,
    spark_crash.NAME: spark_crash.run,
    spark_files.NAME: spark_files.run,
    spark_kafka.NAME: spark_kafka.run,
    spark_load.NAME: spark_load.run,
    transactions.NAME: transactions.run,
    transactions_live.NAME: transactions_live.run,
}
"""Every campaign by name. Another is a sibling module with `NAME` and `run`, and a line here."""

ONLY_IF_ASKED = (spark_kafka.NAME,)
"""Campaigns that fetch what they need from the network."""


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 100)
    by_text = {str(policy): policy for policy in ALL_POLICIES}
    options = Options(
        case_count=given.cases,
        seed=given.seed,
        job_count=given.jobs,
        policy=by_text[given.policy] if given.policy else None,
        protocols=tuple(given.protocol or ()),
        case=given.case,
    )
    failed = False
    unasked = [name for name in CAMPAIGNS if name not in ONLY_IF_ASKED]
    for name in [given.only] if given.only else unasked:
        started = time.monotonic()
        report = _run(name, options, console)
        _print(report, console, time.monotonic() - started)
        failed = failed or bool(report.failures)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.campaign", description=__doc__)
    parser.add_argument("--cases", type=_at_least_one, default=Options.case_count)
    parser.add_argument("--seed", type=int, default=Options.seed)
    parser.add_argument("--jobs", type=_at_least_one, default=os.cpu_count() or 1)
    parser.add_argument("--only", choices=sorted(CAMPAIGNS))
    parser.add_argument(
        "--policy",
        choices=[str(p) for p in ALL_POLICIES],
        metavar="POLICY",
        help="only this policy",
    )
    parser.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        nargs="+",
        metavar="PROTOCOL",
        help="simulated and over the network, only these",
    )
    parser.add_argument("--case", type=int, help="replay the case of this number")
    return parser


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _run(name: str, options: Options, console: Console) -> Report:
    """A bar on a terminal; elsewhere a line every tenth of the way."""
    if not console.is_terminal:
        return CAMPAIGNS[name](replace(options, progress=_lines(console, name)))
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as bar:
        tasks: dict[str, int] = {}

        def show(stage: str, done: int, total: int) -> None:
            if stage not in tasks:
                tasks[stage] = bar.add_task(f"{name}: {stage}", total=total)
            bar.update(tasks[stage], completed=done)  # type: ignore[arg-type]

        return CAMPAIGNS[name](replace(options, progress=show))


def _lines(console: Console, name: str) -> Callable[[str, int, int], None]:
    reached: dict[str, int] = {}

    def show(stage: str, done: int, total: int) -> None:
        tenth = 10 * done // total
        if tenth > reached.get(stage, 0):
            reached[stage] = tenth
            console.print(f"{name}: {stage} {tenth * 10} % ({done:,} of {total:,})")

    return show


def _print(report: Report, console: Console, seconds: float) -> None:
    for table in report.tables:
        console.print(table)
    for note in report.notes:
        console.print(f"note: {note}", markup=False, highlight=False)
    for failure in report.failures:
        console.print(f"FAILED: {failure}", markup=False, highlight=False, soft_wrap=True)
    verdict = f"{len(report.failures)} failures" if report.failures else "passed"
    console.print(f"{report.name}: {verdict} in {seconds:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
