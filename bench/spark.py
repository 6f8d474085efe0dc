"""Tables on Spark: correlation against an Arrow pass-through of the same rows, by cores and keys.

The pass-through moves the same columns from Spark to Python and back to nothing: what any Python
code on Spark pays. Both read the same Parquet file in the same session, in turn.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench import events
from bench.measure import interleaved, timed
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.files import to_arrow

TEXT = "A then B partition by key"


def run(size: Size) -> Section:
    """`A then B partition by key` over Parquet, on one core and on two."""
    from concordant.spark.session import open_session

    rows: list[Row] = []
    count = 2 * size.rows
    with tempfile.TemporaryDirectory() as text:
        for cores in (1, 2):
            session = open_session(f"local[{cores}]", log=Path(text) / "spark.log")
            try:
                for keys in size.powers(1, 3, 5):
                    path = Path(text) / f"{keys}.parquet"
                    if not path.exists():
                        pq.write_table(to_arrow(events.keyed(count, keys, strings=False)), path)
                    rows.append(_measured(session, str(path), size.rounds, cores, keys, count))
            finally:
                session.stop()
    return Section(
        "spark",
        "Tables on Spark",
        f"`{TEXT}` over {count:,} rows of a Parquet file. Pass-through: the same columns through "
        "`mapInArrow` into nothing. Shuffled: the same after `repartition` by key.",
        (
            Column("cores", "cores", "count"),
            Column("keys", "keys", "count"),
            Column("rate", "events", "rate"),
            Column("spread", "spread", "percent"),
            Column("ratio", "to the pass-through", "ratio"),
            Column("shuffled", "to the shuffled one", "ratio"),
            Column("relations", "relations", "count"),
        ),
        rows,
        [
            Goal(
                f"{row['keys']:,} keys on {row['cores']} cores against a pass-through",
                "≤ 2x",
                f"{row['ratio']:.1f}x",
            )
            for row in rows
        ],
        Plot("keys", "rate", "distinct keys", "events per second", "cores"),
    )


def _measured(session: Any, path: str, rounds: int, cores: int, keys: int, count: int) -> Row:
    from concordant.spark import correlate

    frame = session.read.parquet(path)
    found = correlate(frame, TEXT)
    relations = found.count()

    def passed(rows: Any) -> Callable[[], float]:
        counted = rows.mapInArrow(_count, "n bigint")
        return lambda: timed(counted.collect)

    plain = frame.select("topic", "source", "seq", "time", "key")
    taken = interleaved(
        rounds,
        {
            "pass-through": passed(plain),
            "shuffled": passed(plain.repartition("key")),
            "correlate": lambda: timed(
                found.select("id").write.format("noop").mode("overwrite").save
            ),
        },
    )
    mine = taken["correlate"]
    return {
        "cores": cores,
        "keys": keys,
        "rate": count / mine.median,
        "spread": mine.spread,
        "ratio": mine.over(taken["pass-through"]),
        "shuffled": mine.over(taken["shuffled"]),
        "relations": relations,
    }


def _count(batches: Iterable[Any]) -> Iterator[Any]:
    yield pa.RecordBatch.from_pydict({"n": [sum(batch.num_rows for batch in batches)]})
