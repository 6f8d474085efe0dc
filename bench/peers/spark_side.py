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
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.peers.kernel_side import QUESTION, read_quotes
from bench.peers.quotes import Triple
from bench.processes import cpu_seconds
from concordant.files.subscriptions import read_subscriptions
from concordant.memory import keep_freed

SCHEMA = "seq bigint, time bigint, symbol string, value double, volume bigint"
WAYS = ("dropped", "Parquet", "read by Spark")
"""Read by Arrow and matched on Spark, into a sink that drops the matches; into Parquet; dropped
again, but with the file read by Spark's own reader and shuffled by Spark."""


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
        """The file every way, one after the other; and once before, because Spark ends workers that
        had nothing to do for a minute, and Flink's threads stay."""
        self.seconds(path)
        taken = {way: self._ask(way, path) for way in WAYS}
        return SparkRun(
            {way: seconds for way, (seconds, _) in taken.items()},
            {way: cpu for way, (_, cpu) in taken.items()},
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

    pa.set_cpu_count(parallelism)
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
    with _found(session, way, path) as found, tempfile.TemporaryDirectory() as folder:
        writer = found.write.mode("overwrite")
        if way == "Parquet":
            writer.parquet(folder)
        else:
            writer.format("noop").save()


@contextmanager
def _found(session: Any, way: str, path: Path) -> Iterator[Any]:
    from concordant.spark import correlate
    from concordant.spark.batches import relations_on

    if way == "read by Spark":
        frame = session.read.schema(SCHEMA).csv(str(path))
        yield correlate(frame, QUESTION, topic="StockQuote")
    else:
        with relations_on(session, read_quotes(path), read_subscriptions(QUESTION)) as found:
            yield found


def _triples(session: Any, path: Path) -> list[Triple]:
    from concordant.spark.batches import correlate_on

    found = correlate_on(session, read_quotes(path), read_subscriptions(QUESTION))
    return sorted((str(one.key[0]), *(event.seq for event in one.events)) for one in found)  # type: ignore[misc]
