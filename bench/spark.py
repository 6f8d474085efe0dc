"""Tables on Spark: correlation against an Arrow pass-through of the same rows, by cores and keys.

The pass-through moves the same columns from Spark to Python and back into a sink that drops them:
what any Python code on Spark pays. A second one shuffles them by key before, as correlation has to.
Everybody reads the same Parquet file in the same session, in turn. Seconds are those of the clock,
and processor time of Spark and its workers beside them.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from bench import events
from bench.processes import measured
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.files import to_arrow

ROOT = Path(__file__).resolve().parents[1]
TEXT = "A then B partition by key"
MASTERS = ("local[1]", "local[2]", "local-cluster[2,1,1024]")


def run(size: Size) -> Section:
    """`A then B partition by key` over Parquet, on one core, on two, and on two executors."""
    rows: list[Row] = []
    count = 2 * size.rows
    with tempfile.TemporaryDirectory() as text:
        for master in MASTERS:
            with session_of(master, Path(text)) as session:
                for keys in size.powers(1, 3, 6) if master == "local[2]" else [1_000]:
                    path = Path(text) / f"{keys}.parquet"
                    if not path.exists():
                        pq.write_table(to_arrow(events.keyed(count, keys, strings=False)), path)
                    rows += _measured(session, str(path), size, master, keys, count)
    jvm = [row for row in rows if row["reader"] == "Spark"]
    cpu = {row["master"]: row["cpu"] for row in jvm if row["keys"] == 1_000}
    goals = [
        Goal(
            f"read by {row['reader']}, {row['keys']:,} keys, {row['master']}: to a pass-through, "
            "and in processor time",
            "≤ 2x" if row["reader"] == "Spark" else "< 1x",
            f"{row['ratio']:.2f}x, {row['cpu_ratio']:.2f}x",
        )
        for row in rows
    ]
    for master in MASTERS[1:]:
        grown = cpu[master] / cpu[MASTERS[0]]
        goals.append(
            Goal(f"processor time per event on {master} to local[1]", "≤ 1.2x", f"{grown:.2f}x")
        )
    return Section(
        "spark",
        "Tables on Spark",
        f"`{TEXT}` over {count:,} rows of a Parquet file, of which every second completes a "
        "relation. Pass-through: the columns that correlation reads, through `mapInArrow` "
        "unchanged, into a sink that drops them. Read by the workers: no row goes through the JVM.",
        (
            Column("master", "master"),
            Column("reader", "read by"),
            Column("keys", "keys", "count"),
            Column("rate", "events", "rate"),
            Column("spread", "spread", "percent"),
            Column("ratio", "to the pass-through", "ratio"),
            Column("cpu", "processor ns/event", "ns"),
            Column("cpu_ratio", "to the pass-through's", "ratio"),
            Column("cpu_shuffled", "to a shuffled one's", "ratio"),
            Column("relations", "relations", "count"),
        ),
        rows,
        goals,
        Plot("keys", "rate", "distinct keys", "events per second", "reader"),
    )


class session_of:  # noqa: N801 - read as a function
    """A session for a block."""

    def __init__(self, master: str, folder: Path) -> None:
        self._master, self._folder = master, folder

    def __enter__(self) -> Any:
        from concordant.spark.session import open_session

        self._session = open_session(
            self._master,
            options={"spark.executorEnv.PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"},
            log=self._folder / "spark.log",
        )
        return self._session

    def __exit__(self, *_: object) -> None:
        self._session.stop()


def rounds_of(size: Size) -> int:
    """Fewer than elsewhere: a job is much longer than a step of the kernel."""
    return max(2, size.rounds // 2)


def dropped(frame: Any) -> Callable[[], object]:
    """Everything of a DataFrame computed, and nothing kept."""
    return lambda: frame.write.format("noop").mode("overwrite").save()


def passed(frame: Any) -> Any:
    """The rows of a DataFrame through Python, unchanged."""
    return frame.mapInArrow(_same, frame.schema)


def _same(batches: Iterable[Any]) -> Iterator[Any]:
    yield from batches


def _measured(session: Any, path: str, size: Size, master: str, keys: int, count: int) -> list[Row]:
    from concordant.spark import correlate

    frame = session.read.parquet(path)
    found = {
        "Spark": correlate(frame, TEXT, scan="jvm"),
        "the workers": correlate(frame, TEXT, scan="worker"),
    }
    relations = {name: one.count() for name, one in found.items()}
    candidates = {
        "pass-through": dropped(passed(frame)),
        "shuffled": dropped(passed(frame.repartition("key"))),
    }
    candidates |= {name: dropped(one) for name, one in found.items()}
    for run_once in [*candidates.values()] * 2:  # the JVM compiles what runs often
        run_once()
    taken, least = measured(rounds_of(size), candidates)
    assert len(set(relations.values())) == 1, "both ways of reading give the same relations"
    return [
        {
            "master": master,
            "reader": name,
            "keys": keys,
            "rate": count / taken[name].median,
            "spread": taken[name].spread,
            "ratio": taken[name].over(taken["pass-through"]),
            "cpu": 1e9 * least[name] / count,
            "cpu_ratio": least[name] / least["pass-through"],
            "cpu_shuffled": least[name] / least["shuffled"],
            "relations": relations[name],
        }
        for name in found
    ]
