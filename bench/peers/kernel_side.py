"""The Concordant side: processes that read the file, take their share of the symbols, and match.

One process at parallelism 1; at 2, each process reads the whole file and keeps the symbols of its
half, as a partition by key would. Processes live as long as the benchmark, so that Python's
start-up counts as little as the JVM's, and keep what they free, as the JVM keeps its heap. Arrow
gets one thread in each.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

from bench.peers.quotes import COLUMNS, Triple
from concordant.correlate.columns import Batch
from concordant.correlate.found import Found
from concordant.correlate.kernel import Kernel
from concordant.files import in_order, read_events
from concordant.files.subscriptions import read_subscriptions
from concordant.local import plan_for
from concordant.memory import keep_freed
from concordant.model.kind import Kind

QUESTION = """\
StockQuote[1].value < StockQuote[2].value and StockQuote[2].value < StockQuote[3].value
match first contiguous consume prefix
partition by symbol
"""

_TYPES = {
    "seq": pa.int64(),
    "time": pa.int64(),
    "symbol": pa.dictionary(pa.int32(), pa.string()),
    "value": pa.float64(),
    "volume": pa.int64(),
}
_USED = ["seq", "time", "symbol", "value"]
"""The columns that the question and the order need; Flink's planner drops `volume` too."""


@dataclass(frozen=True)
class Run:
    """What one run took: the slowest process in seconds, all of them in processor time."""

    scan_seconds: float
    match_seconds: float
    scan_cpu_seconds: float
    match_cpu_seconds: float
    relations: int


class Concordant:
    """So many processes, waiting for files."""

    def __init__(self, parallelism: int) -> None:
        # Spawned: a fork would take over locks of Arrow's threads.
        context = multiprocessing.get_context("spawn")
        # Kept: a barrier that is let go of is gone before a slow child has opened it.
        self._barrier = context.Barrier(parallelism)
        self._pipes: list[Connection] = []
        self._children = []
        for share in range(parallelism):
            mine, theirs = context.Pipe()
            child = context.Process(
                target=_serve, args=(theirs, self._barrier, share, parallelism), daemon=True
            )
            child.start()
            theirs.close()
            self._pipes.append(mine)
            self._children.append(child)

    def __enter__(self) -> Concordant:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.close()
        for child in self._children:
            child.join(timeout=10)

    def run(self, path: Path) -> Run:
        """Read the file and match."""
        runs: list[Run] = self._ask((path, False))
        return Run(
            max(run.scan_seconds for run in runs),
            max(run.match_seconds for run in runs),
            sum(run.scan_cpu_seconds for run in runs),
            sum(run.match_cpu_seconds for run in runs),
            sum(run.relations for run in runs),
        )

    def triples(self, path: Path) -> list[Triple]:
        """The matches themselves, sorted."""
        return sorted(triple for found in self._ask((path, True)) for triple in found)

    def _ask(self, request: tuple[Path, bool]) -> list[Any]:
        for pipe in self._pipes:
            pipe.send(request)
        return [pipe.recv() for pipe in self._pipes]


def _serve(pipe: Connection, barrier: Barrier, share: int, of: int) -> None:
    pa.set_cpu_count(1)
    keep_freed()
    while True:
        try:
            path, wants_triples = pipe.recv()
        except EOFError:
            return
        run, found = _measured(path, barrier, share, of)
        pipe.send(_triples(found) if wants_triples else run)


def _measured(path: Path, barrier: Barrier, share: int, of: int) -> tuple[Run, Found]:
    barrier.wait()
    start, start_cpu = time.perf_counter(), time.process_time()
    batch = read_quotes(path)
    scanned, scanned_cpu = time.perf_counter(), time.process_time()
    barrier.wait()
    begin, begin_cpu = time.perf_counter(), time.process_time()
    mine = _share(batch, share, of)
    found = Kernel(plan_for(mine, read_subscriptions(QUESTION))).step(mine)
    end, end_cpu = time.perf_counter(), time.process_time()
    run = Run(
        scanned - start, end - begin, scanned_cpu - start_cpu, end_cpu - begin_cpu, len(found)
    )
    return run, found


def read_quotes(path: Path) -> Batch:
    """The file as a checked batch in the total order."""
    table = pcsv.read_csv(
        path,
        read_options=pcsv.ReadOptions(column_names=list(COLUMNS)),
        convert_options=pcsv.ConvertOptions(column_types=_TYPES, include_columns=_USED),
    )
    return in_order(read_events(table, topic="StockQuote"))


def _share(batch: Batch, share: int, of: int) -> Batch:
    if of == 1:
        return batch
    symbol = batch.attributes["symbol", Kind.STRING].values
    return batch.take(np.flatnonzero(symbol % of == share))


def _triples(found: Found) -> list[Triple]:
    return [(str(one.key[0]), *(event.seq for event in one.events)) for one in found]  # type: ignore[misc]
