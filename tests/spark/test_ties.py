"""Rows with one place, and rows that are no events: the same whoever reads, filters and spreads."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from concordant.spark import correlate, in_order
from concordant.spark.asked import ask
from tests.ties import QUESTION, Row, expected, got, tried

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("source", pa.string()),
        ("seq", pa.int64()),
        ("time", pa.int64()),
        ("id", pa.string()),
        ("k", pa.int64()),
        ("s", pa.string()),
        ("x", pa.float64()),
        ("f", pa.bool_()),
    ]
)


def frame(spark: Any, folder: Path, rows: list[Row], *, seed: int = 0) -> Any:
    """Rows in files, shuffled."""
    folder.mkdir()
    rows = Random(seed).sample(rows, len(rows))
    for number in range(3):
        table = pa.Table.from_pylist(rows[number::3], SCHEMA)
        pq.write_table(table, folder / f"{number}.parquet")
    return spark.read.parquet(str(folder))


@pytest.mark.parametrize("scan", ["jvm", "worker"])
@pytest.mark.parametrize("seed", [1, 2])
def test_rows_with_one_place_are_told_apart_by_what_they_say(
    spark: Any, tmp_path: Path, scan: str, seed: int
) -> None:
    _, rows, *_ = tried(seed)
    events = frame(spark, tmp_path / "in", rows, seed=seed)
    asked = ask(events, QUESTION, attributes="*", bad="skip")
    relations, told = expected(asked.job, rows)
    assert relations
    assert told
    assert got([asked.answers(scan).toArrow()]) == (relations, told)


def test_relations_of_one_place_are_in_order_too(spark: Any) -> None:
    rows = [("A", "s", 1, 7, f"{k:02}") for k in range(30)]
    schema = "topic string, source string, seq long, time long, k string"
    events = spark.createDataFrame(rows, schema)
    found = correlate(events, "A partition by k").orderBy(F.desc("id")).limit(30)
    assert [one.key for one in in_order(found).collect()] == [[f"{k:02}"] for k in range(30)]
    without_ids = correlate(events, "A partition by k", select=["at", "tie", "A.k"])
    found = in_order(without_ids.orderBy(F.desc("A.k")).limit(30))
    assert [one.A.k for one in found.collect()] == [f"{k:02}" for k in range(30)]


def row(**values: Any) -> Row:
    return {"topic": "A", "source": "p", "seq": 1, "time": 1, **values}


@pytest.mark.parametrize("scan", ["jvm", "worker"])
def test_ids_are_compared_before_anything_is_filtered(
    spark: Any, tmp_path: Path, scan: str
) -> None:
    rows = [
        row(seq=1, time=1, id="one", x=0.0),  # no slot takes it, and it was there
        row(seq=2, time=2, id="one", x=1.0),
        row(seq=3, time=3, id="two", x=1.0),
    ]
    events = frame(spark, tmp_path / "in", rows)
    asked = ask(events, "A.x > 0.5", bad="skip", unique="1 s", attributes="*")
    relations, told = got([asked.answers(scan).toArrow()])
    assert len(relations) == 1
    assert dict(told) == {"('repeated', 'A', 'p', 2, 2, None, None, 1.0, None)": 1}


@pytest.mark.parametrize("scan", ["jvm", "worker"])
def test_rows_that_are_no_events_are_told_though_no_slot_would_take_them(
    spark: Any, tmp_path: Path, scan: str
) -> None:
    rows = [
        row(seq=1, k=-(2**63), x=9.0),
        row(seq=2, k=1, x=0.0, time=None),
        row(seq=3, k=1, x=0.0, topic=None),
        row(seq=4, k=1, x=0.0, topic=""),
        row(seq=5, k=1, x=0.0, source=""),
        row(seq=None, k=1, x=0.0),
        row(seq=7, k=1, x=0.0),
        row(seq=-(2**63), k=1, x=0.0),
    ]
    events = frame(spark, tmp_path / "in", rows)
    question = "one: A.k > 0 and A.x > 0.5 partition by k\ntwo: A.k > 5 partition by x"
    asked = ask(events, question, bad="skip", attributes="*")
    assert len(asked.job.sets) == 2
    relations, told = got([asked.answers(scan).toArrow()])
    assert relations == []
    assert dict(told) == {
        "('bad', 'A', 'p', 1, 1)": 1,
        "('bad', 'A', 'p', 2, None)": 1,
        "('bad', None, 'p', 3, 1)": 1,
        "('bad', None, 'p', 4, 1)": 1,
        "('bad', 'A', None, 5, 1)": 1,
        "('bad', 'A', 'p', None, 1)": 1,
        f"('bad', 'A', 'p', {-(2**63)}, 1)": 1,
    }


def test_texts_that_are_no_times_are_told_though_no_slot_would_take_their_rows(
    spark: Any, tmp_path: Path
) -> None:
    texts = [
        "1970-01-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "yesterday",
        "24:00",
        "1",
        "99",
        "9" * 20,
    ]
    lines = [f"A,p,{seq},{text},0.0\n" for seq, text in enumerate(texts)]
    (tmp_path / "in.csv").write_text("".join(lines))
    schema = "topic string, source string, seq long, time string, x double"
    events = spark.read.csv(str(tmp_path / "in.csv"), schema)
    asked = ask(events, "A.x > 0.5", bad="skip")
    answers = asked.answers("jvm").toArrow().to_pylist()
    bad = [one["events"][0]["seq"] for one in answers if one["what"] == "bad"]
    assert sorted(bad) == [1, 2, 3, 6]
