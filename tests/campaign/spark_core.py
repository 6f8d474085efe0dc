"""The core on Spark against the kernel: thousands of random cases of every policy, without Spark.

Each case is cut into buckets whose state goes through bytes, into the pieces of a table, and into
CSV or Parquet files that one to three tasks read. The report fails if any of them differs, if too
few cases deliver, if a way of reading hardly occurred, or if a planted bug survived.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from rich.table import Table

from tests.buckets import bucket_summaries, kernel_summaries, ordered, table_summaries
from tests.campaign.compare import case_of
from tests.campaign.shape import Options, Report
from tests.detection.spark_bugs import BUGS, CASE_COUNT_MAX, cases_to_find, make_small
from tests.generators import ALL_POLICIES
from tests.scans import file_summaries

NAME = "spark-core"

CASE_COUNT_MAX_HERE = 20_000
"""A case is played three ways and written to files: fewer than elsewhere are enough."""
DELIVERING_SHARE_MIN = 0.4
FORM_SHARE_MIN = 0.1
_CHUNK = 100


def run(options: Options) -> Report:
    count = min(options.case_count, CASE_COUNT_MAX_HERE)
    occurred: Counter[str] = Counter()
    different: list[str] = []
    found: dict[int, int | None] = {}
    with ProcessPoolExecutor(options.job_count, mp_context=get_context("spawn")) as pool:
        chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
        if options.case is not None:
            chunks = [range(options.case, options.case + 1)]
        jobs = [pool.submit(_tried, options.seed, chunk) for chunk in chunks]
        for done, job in enumerate(as_completed(jobs), 1):
            counted, names = job.result()
            occurred += counted
            different += names
            options.progress("chunks of cases", done, len(jobs))
        hunts = {pool.submit(cases_to_find, plant): n for n, plant in enumerate(BUGS)}
        for done, hunt in enumerate(as_completed(hunts), 1):
            found[hunts[hunt]] = hunt.result()
            options.progress("planted bugs", done, len(hunts))
    table = Table("what", "cases", title="The core on Spark against the kernel")
    for name, number in sorted(occurred.items()):
        table.add_row(name, f"{number:,}")
    bugs = Table("planted bug", "cases", title="cases until it was found")
    for number, taken in sorted(found.items()):
        bugs.add_row(BUGS[number].__name__, "survived" if taken is None else str(taken))
    report = Report(NAME, [table, bugs], [], [f"{one} differs" for one in sorted(different)])
    report.failures += [
        f"'{BUGS[n].__name__}' survived {CASE_COUNT_MAX} cases"
        for n, taken in sorted(found.items())
        if taken is None
    ]
    if options.case is None:
        wanted = {
            "delivered": DELIVERING_SHARE_MIN,
            "CSV": FORM_SHARE_MIN,
            "Parquet": FORM_SHARE_MIN,
        }
        report.failures += [
            f"{name}: {occurred[name]} of {occurred['played']} cases are too few"
            for name, share in wanted.items()
            if occurred[name] < share * occurred["played"]
        ]
    return report


def _tried(seed: int, numbers: range) -> tuple[Counter[str], list[str]]:
    """What occurred in some cases, and those that differ, with the way in which they do."""
    occurred: Counter[str] = Counter()
    different = []
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        make_small(patch)
        for number in numbers:
            case = ordered(case_of(seed, ALL_POLICIES[number % len(ALL_POLICIES)], number))
            expected = kernel_summaries(case)
            by_tasks, form = file_summaries(case, Random(number), Path(folder))
            ways = {
                "buckets": bucket_summaries(case, Random(number), saved=number % 2 == 0),
                "pieces of a table": table_summaries(case, Random(number)),
                form: by_tasks,
            }
            different += [
                f"seed {seed}, case {number}: {way}"
                for way, found in ways.items()
                if found != expected
            ]
            occurred["played"] += 1
            occurred["delivered"] += bool(expected)
            occurred["relations"] += len(expected)
            occurred[form] += bool(expected)
    return occurred, different
