"""Streams on Spark: both adapters against a pass-through stream of the same files.

A folder of Parquet files, one per micro-batch. The pass-through takes each micro-batch through
Python, unchanged, into a sink that drops it. A second one brings the rows of a key together before,
as whoever keeps state by key has to: less than that nobody pays.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench import events
from bench.processes import measured
from bench.result import Column, Goal, Row, Section, Size
from bench.spark import TEXT, dropped, passed, rounds_of, session_of
from concordant.files import to_arrow

BATCHES = 4
KEYS = 1_000


def run(size: Size) -> Section:
    """Events per second of streams on two cores."""
    count = BATCHES * size.rows
    with tempfile.TemporaryDirectory() as text, session_of("local[2]", Path(text)) as session:
        folder = Path(text)
        (folder / "in").mkdir()
        for number, table in enumerate(_tables(count)):
            path = folder / "in" / f"{number}.parquet"
            pq.write_table(table, path)
            os.utime(path, (1_000_000 + number, 1_000_000 + number))
        stream = Streams(session, folder)
        candidates: dict[str, Callable[[], None]] = {
            "pass-through": stream.passed,
            "shuffled pass-through": lambda: stream.passed("key"),
            "files": lambda: stream.correlated("files"),
            "store": lambda: stream.correlated("store"),
        }
        for once in candidates.values():
            once()
        taken, least = measured(rounds_of(size), candidates)
    rows: list[Row] = [
        {
            "adapter": name,
            "rate": count / one.median,
            "spread": one.spread,
            "batch": one.median / BATCHES,
            "ratio": one.over(taken["pass-through"]),
            "cpu": 1e9 * least[name] / count,
            "cpu_ratio": least[name] / least["pass-through"],
            "cpu_shuffled": least[name] / least["shuffled pass-through"],
        }
        for name, one in taken.items()
    ]
    return Section(
        "spark-stream",
        "Streams on Spark",
        f"`{TEXT}` over {count:,} rows in {BATCHES} micro-batches, {KEYS:,} keys, "
        "released by frontier; results into a sink that drops them.",
        (
            Column("adapter", "state in"),
            Column("rate", "events", "rate"),
            Column("spread", "spread", "percent"),
            Column("batch", "per micro-batch", "seconds"),
            Column("ratio", "to the pass-through", "ratio"),
            Column("cpu", "processor ns/event", "ns"),
            Column("cpu_ratio", "to the pass-through's", "ratio"),
            Column("cpu_shuffled", "to the shuffled one's", "ratio"),
        ),
        rows,
        [
            Goal(
                f"state in {row['adapter']}: to the pass-through, and in processor time",
                "≤ 2x",
                f"{row['ratio']:.2f}x, {row['cpu_ratio']:.2f}x "
                f"({row['cpu_shuffled']:.2f}x of one that shuffles)",
            )
            for row in rows[2:]
        ],
    )


def _tables(count: int) -> list[Any]:
    whole = to_arrow(events.keyed(count, KEYS, strings=False))
    step = count // BATCHES
    return [whole.slice(start, step) for start in range(0, count, step)]


class Streams:
    """Streams over one folder, each from its beginning."""

    def __init__(self, session: Any, folder: Path) -> None:
        self._session = session
        self._folder = folder
        self._number = 0
        self._schema = session.read.parquet(str(folder / "in")).schema

    def passed(self, *key: str) -> None:
        """Every micro-batch through Python and away; with a key, shuffled by it before."""

        def away(rows: Any, _: int) -> None:
            dropped(passed(rows.repartition(*key) if key else rows))()

        writer = self._rows().writeStream.foreachBatch(away)
        options = {"checkpointLocation": self._place()}
        writer.options(**options).trigger(availableNow=True).start().awaitTermination()

    def correlated(self, adapter: str) -> None:
        """Every micro-batch through the kernel, its results away."""
        from concordant.spark.streaming import open_stream

        def away(answers: Any, _: int) -> None:
            dropped(answers)()

        stream = open_stream(
            self._rows(),
            TEXT,
            release="frontier",
            checkpoint=self._place(),
            deliver=away,
            adapter=adapter,
        )
        stream.start({"availableNow": True}).awaitTermination()

    def _rows(self) -> Any:
        reader = self._session.readStream.schema(self._schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self._folder / "in"))

    def _place(self) -> str:
        self._number += 1
        return str(self._folder / f"checkpoint-{self._number}")
