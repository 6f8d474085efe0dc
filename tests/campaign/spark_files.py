"""CSV files that workers read against Spark's own reader: odd cells, lines, options and settings.

A case is asked twice, once for each reader, and every event must be the same with all its cells,
bad rows included. The report says how often workers read, and why Spark did; it fails if a case
differs, or if workers read too few of them.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from rich.table import Table

from concordant.spark.session import open_session
from tests.campaign.shape import Options, Report
from tests.odd_csv import compared, odd_csv

NAME = "spark-files"

CASE_COUNT_MAX_HERE = 2_000
"""Each is two jobs of Spark."""
WORKER_SHARE_MIN = 0.3
ROWS_PER_CASE_MIN = 5


def run(options: Options) -> Report:
    count = min(options.case_count, CASE_COUNT_MAX_HERE)
    numbers = range(count) if options.case is None else [options.case]
    why: Counter[str] = Counter()
    failures: list[str] = []
    rows = 0
    with TemporaryDirectory() as made, _session(made) as session:
        for done, number in enumerate(numbers, 1):
            folder = Path(made) / str(number)
            folder.mkdir()
            case = odd_csv(Random(f"{options.seed} {number}"), folder)
            reason, found, different = compared(session, case)
            why[_shortened(reason)] += 1
            rows += found
            if different:
                failures.append(f"seed {options.seed}, case {number}: {different[0][:200]}")
            options.progress("files", done, len(numbers))
    table = Table("read by", "cases", title="CSV files, workers against Spark")
    for reason, number in why.most_common():
        table.add_row(reason, f"{number:,}")
    if options.case is None:
        by_workers = why[_shortened("")]
        if by_workers < WORKER_SHARE_MIN * count or rows < ROWS_PER_CASE_MIN * by_workers:
            failures.append(f"workers read {by_workers} of {count} cases with {rows} rows: too few")
    return Report(NAME, [table], [f"{rows:,} rows compared"], failures)


def _session(folder: str) -> Any:
    settings = {"spark.local.dir": folder, "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    return open_session("local[2]", options=settings, log=Path(folder) / "spark.log")


def _shortened(reason: str) -> str:
    """The reason without names of inputs and files."""
    words = reason.removeprefix("table: ").removeprefix("0.csv ").removeprefix("1.csv ")
    return f"Spark: {words}" if words else "workers"
