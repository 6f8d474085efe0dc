"""The Concordant side on Spark: the same file and question end to end, in a warm session.

A process per parallelism holds a session `local[N]`, so that two can stand beside each other and
beside Flink. Everything from the call to the last written row counts, planning included. The
session starts with the first question, as Flink's JVM does, and the process keeps what it frees,
as a JVM keeps its heap.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench.peers.kernel_side import QUESTION
from bench.peers.quotes import Triple
from bench.processes import cpu_seconds
from concordant.memory import keep_freed

SCHEMA = "seq bigint, time bigint, symbol string, value double, volume bigint"
WAYS = ("Flink's columns", "all columns", "Parquet", "read by Spark")
"""The DataFrame of the file, correlated into a sink that drops the matches: with the columns that
Flink's query selects, and with all; all into Parquet; and dropped again, but with the file read by
Spark's own reader and shuffled by Spark, as it is where workers cannot read it."""

SHORT = WAYS[:2]
"""Ways that last less than a second or two: they are taken in turn, and the median counts."""
TURNS = 5
WARM_UPS = 4
"""Turns beforehand that do not count, together no longer than a job of Flink: a JVM that has worked
for no more than a second spends a third of the next one on compiling itself."""

SELECT = ("key", "StockQuote_1.seq", "StockQuote_2.seq", "StockQuote_3.seq")


@dataclass(frozen=True)
class SparkRun:
    """What one run took, by its way."""

    seconds: dict[str, float]
    cpu_seconds: dict[str, float]
    """Of this side's process, its JVM and its workers."""


class ConcordantOnSpark:
    """A session of so many cores, waiting for files."""

    def __init__(self, parallelism: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        # No daemon: it has children of its own, the JVM and its workers.
        self._child = context.Process(target=_serve, args=(theirs, parallelism))
        self._child.start()
        theirs.close()

    def __enter__(self) -> ConcordantOnSpark:
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()
        self._child.join()

    def run(self, path: Path) -> SparkRun:
        """The file every way; before that the JVM warms up, and workers come back that Spark has
        ended because they had nothing to do for a minute: Flink's threads stay."""
        turns = [{way: self._ask(way, path) for way in SHORT} for _ in range(WARM_UPS + TURNS)]
        taken = {way: [turn[way] for turn in turns[WARM_UPS:]] for way in SHORT}
        taken |= {way: [self._ask(way, path)] for way in WAYS if way not in SHORT}
        return SparkRun(
            {way: median(seconds for seconds, _ in turns) for way, turns in taken.items()},
            {way: median(cpu for _, cpu in turns) for way, turns in taken.items()},
        )

    def triples(self, path: Path) -> list[Triple]:
        """The matches themselves, sorted."""
        found: list[Triple] = self._ask("triples", path)
        return found

    def seconds(self, path: Path) -> float:
        """One run, the first way."""
        taken: float = self._ask(WAYS[0], path)[0]
        return taken

    def _ask(self, what: str, path: Path) -> Any:
        self._pipe.send((what, path))
        answer = self._pipe.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer


def _serve(pipe: Any, parallelism: int) -> None:
    from concordant.spark.session import open_session

    keep_freed()
    session: Any = None
    while True:
        try:
            what, path = pipe.recv()
        except EOFError:
            break
        try:
            start, start_cpu = time.perf_counter(), cpu_seconds()
            session = session or open_session(f"local[{parallelism}]")
            if what == "triples":
                pipe.send(_triples(session, path))
            else:
                _run(session, what, path)
                pipe.send((time.perf_counter() - start, cpu_seconds() - start_cpu))
        except Exception as error:
            pipe.send(RuntimeError(str(error)))
    if session is not None:
        session.stop()


def _run(session: Any, way: str, path: Path) -> None:
    found = _found(
        session,
        path,
        select=SELECT if way == "Flink's columns" else (),
        scan="jvm" if way == "read by Spark" else "worker",
    )
    with tempfile.TemporaryDirectory() as folder:
        writer = found.write.mode("overwrite")
        if way == "Parquet":
            writer.parquet(folder)
        else:
            writer.format("noop").save()


def _found(session: Any, path: Path, **options: Any) -> Any:
    from concordant.spark import correlate

    frame = session.read.schema(SCHEMA).csv(str(path))
    return correlate(frame, QUESTION, topic="StockQuote", **options)


def _triples(session: Any, path: Path) -> list[Triple]:
    rows = _found(session, path, select=SELECT).collect()
    return sorted((row.key[0], *(event.seq for event in row[1:])) for row in rows)
