"""Tables on Spark as they grow: more subscriptions, and more events with flat memory."""

from __future__ import annotations

import tempfile
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import events
from bench.processes import measured, resident_bytes
from bench.result import Column, Goal, Plot, Row, Section, Size
from bench.spark import dropped, session_of
from concordant.files import to_arrow

PIECE = 5_000_000
KEYS = 10_000
SELECTIVE = "A then B and A.key = {value} and B.key = {value}"


def run(size: Size) -> Section:
    """Events from 10⁵ and subscriptions from 1, on two cores."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as text, session_of("local[2]", Path(text)) as session:
        counts = [size.rows // 10, size.rows, 10 * size.rows]
        if size.name == "full":
            counts.append(100 * size.rows)
        for count in counts:
            rows.append(_events(session, Path(text) / f"events-{count}", count))
        for subscriptions in (1, 10, 100, 1_000):
            rows.append(_subscriptions(session, Path(text), size.rows, subscriptions))
    grown = [row for row in rows if row["what"] == "events"]
    return Section(
        "spark-growth",
        "Growth on Spark",
        f"Events: `A then B partition by key within 1 s` over {KEYS:,} keys, read and shuffled by "
        "Spark; memory is what driver and workers held at most, without the JVM, whose heap is "
        "bounded by 2 GiB. Subscriptions: each wants one of as many keys, so that an event is "
        "wanted by one of them.",
        (
            Column("what", "growing"),
            Column("size", "to", "count"),
            Column("events", "events", "count"),
            Column("rate", "events", "rate"),
            Column("cpu", "processor ns/event", "ns"),
            Column("memory", "memory", "megabytes"),
            Column("relations", "relations", "count"),
        ),
        rows,
        [
            Goal(
                f"memory at {grown[-1]['events']:,} events to {grown[1]['events']:,}",
                "flat",
                f"{grown[-1]['memory'] / grown[1]['memory']:.2f}x",
            )
        ],
        Plot("size", "rate", "events, or subscriptions", "events per second", "what"),
    )


def _events(session: Any, folder: Path, count: int) -> Row:
    from concordant.spark import correlate

    folder.mkdir()
    for start in range(0, count, PIECE):
        _write(folder / f"{start}.parquet", start, min(PIECE, count - start))
    frame = session.read.parquet(str(folder))
    found = correlate(frame, "A then B partition by key within 1 s", scan="jvm")
    row = _row("events", count, count, found)
    for path in folder.iterdir():
        path.unlink()
    return row


def _row(what: str, size: int, count: int, found: Any) -> Row:
    relations = found.count() if count <= PIECE else None
    with Watched() as watched:
        taken, cpu = measured(1, {what: dropped(found)})
    return {
        "what": what,
        "size": size,
        "events": count,
        "rate": count / taken[what].median,
        "cpu": 1e9 * cpu[what] / count,
        "memory": watched.most,
        "relations": relations,
    }


def _write(path: Path, start: int, count: int) -> None:
    rng = np.random.default_rng(start)
    numbers = np.arange(start, start + count)
    table = pa.table(
        {
            "source": pa.nulls(count, pa.string()).fill_null("s"),
            "seq": numbers,
            "time": numbers * 10,
            "key": rng.integers(0, KEYS, count),
        }
    )
    names = pa.array(["A", "B"]).take(pa.array(rng.integers(0, 2, count)))
    pq.write_table(table.add_column(0, "topic", names), path)


def _subscriptions(session: Any, folder: Path, count: int, subscriptions: int) -> Row:
    from concordant.spark import correlate

    path = folder / f"subscriptions-{subscriptions}.parquet"
    batch = events.keyed(count, subscriptions, strings=False)
    pq.write_table(to_arrow(batch), path)
    values = np.unique(batch.attributes[events.KEY].values)
    text = "\n".join(
        f"s{number}: {SELECTIVE.format(value=value)}" for number, value in enumerate(values)
    )
    found = correlate(session.read.parquet(str(path)), text, scan="jvm")
    return _row("subscriptions", subscriptions, count, found)


class Watched:
    """The most memory held during a block, looked at ten times a second."""

    most = 0

    def __enter__(self) -> Watched:
        self._over = Event()
        self._thread = Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.1):
            self.most = max(self.most, resident_bytes())
