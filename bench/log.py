"""The durable log: messages per second that are on the disk when their writers are told so.

Every record is synced (`fdatasync`) before its writer goes on. One writer alone waits for the disk
each time; many writers share the wait by group commit; a batch is one record after the other in one
frame.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter

from bench.measure import interleaved
from bench.result import Column, Goal, Row, Section, Size
from concordant.net.commit import GroupCommit
from concordant.net.log import Log

RECORD = bytes(range(100))
WANTED = 100_000
WRITERS = (1, 10, 100, 1_000)
BATCHES = (1, 10, 100)


def run(size: Size) -> Section:
    """Writers and batches, each once per round on a log of its own."""
    seconds = max(0.2, size.budget_seconds)
    cells = [(writers, batch) for batch in BATCHES for writers in WRITERS]
    counts: dict[tuple[int, int], list[int]] = {cell: [] for cell in cells}

    def measure(writers: int, batch: int) -> float:
        with tempfile.TemporaryDirectory() as folder:
            count, taken = asyncio.run(_write(Path(folder), writers, batch, seconds))
        counts[writers, batch].append(count)
        return taken

    candidates: dict[str, Callable[[], float]] = {
        f"{writers}/{batch}": partial(measure, writers, batch) for writers, batch in cells
    }
    times = interleaved(size.rounds, candidates)
    rows: list[Row] = []
    for writers, batch in cells:
        timing = times[f"{writers}/{batch}"]
        rates = sorted(
            count / taken
            for count, taken in zip(counts[writers, batch], timing.seconds, strict=True)
        )
        rate = rates[len(rates) // 2]
        rows.append(
            {
                "writers": writers,
                "batch": batch,
                "rate": rate,
                "wait": writers * batch / rate,
                "spread": (rates[-1] - rates[0]) / rate,
            }
        )
    alone = next(row["rate"] for row in rows if row["writers"] == row["batch"] == 1)
    group = next(row["rate"] for row in rows if (row["writers"], row["batch"]) == (1_000, 1))
    gathered = next(row["rate"] for row in rows if (row["writers"], row["batch"]) == (100, 100))
    return Section(
        "log",
        "Durable log",
        f"Records of {len(RECORD)} bytes; a writer appends a batch and goes on when it is on the "
        "disk. *Wait* is how long a writer waits for one batch, on average.",
        (
            Column("batch", "records in a batch", "count"),
            Column("writers", "writers at once", "count"),
            Column("rate", "durable records", "rate"),
            Column("wait", "wait", "seconds"),
            Column("spread", "spread", "percent"),
        ),
        rows,
        [
            Goal(
                "durable messages, 1,000 writers, one each, by group commit",
                f"≥ {WANTED:,}/s",
                f"{group:,.0f}/s",
            ),
            Goal(
                "durable messages, 100 writers of batches of 100",
                f"≥ {WANTED:,}/s",
                f"{gathered:,.0f}/s",
            ),
            Goal("durable messages, one by one", "stated", f"{alone:,.0f}/s"),
        ],
    )


async def _write(folder: Path, writers: int, batch: int, seconds: float) -> tuple[int, float]:
    """How many records became durable, in how long."""
    log = Log(folder)
    commit = GroupCommit(log)
    records = [RECORD] * batch
    start = perf_counter()
    end = start + seconds

    async def write() -> int:
        count = 0
        while perf_counter() < end:
            await commit.append(records)
            count += batch
        return count

    total = sum(await asyncio.gather(*(write() for _ in range(writers))))
    taken = perf_counter() - start
    assert log.count == total
    log.close()
    return total, taken
