"""What is asked is checked before anything runs; what was set aside can be seen and counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from concordant.errors import UsageError
from concordant.spark import correlate, explain
from concordant.spark.asked import Options

SCHEMA = "topic string, source string, seq bigint, time bigint, v bigint"
QUESTION = "A[1].v < A[2].v"
ROWS = [("A", "s", n, n * 1_000_000, n) for n in range(1, 7)]


def table(spark: Any, rows: Any = ROWS) -> Any:
    return spark.createDataFrame(rows, SCHEMA)


def stream(spark: Any) -> Any:
    return spark.readStream.format("rate").load().selectExpr("value seq", "timestamp time")


WRONG: list[tuple[Callable[[Any], Any], dict[str, Any], str, str]] = [
    (table, {"atributes": "*"}, "there is no option 'atributes'", "did you mean 'attributes'?"),
    (table, {"frobnicate": 1}, "there is no option 'frobnicate'", "the options are match, "),
    (table, {"time": 5}, "time=5", "time is a text"),
    (table, {"scan": "spark"}, "scan='spark' is unknown", "one of auto, jvm, worker"),
    (table, {"bucket_count": 4}, "bucket_count is for streams", "leave bucket_count out"),
    (table, {"metrics": "mine"}, "metrics is for streams", "leave metrics out"),
    (table, {"release": "log"}, "a table is complete", "leave release out"),
    (table, {"aside": "yes"}, "aside='yes'", "aside is True or False"),
    (stream, {"topic": "A"}, "nothing says when", "release='frontier'"),
    (stream, {"topic": "A", "release": "log", "scan": "jvm"}, "scan='jvm' is for tables", "leave"),
    (stream, {"topic": "A", "release": "log", "bucket_count": 0}, "no bucket", "one or more"),
    (stream, {"topic": "A", "release": "log", "bucket_count": "8"}, "='8'", "is a whole number"),
    (stream, {"topic": "A", "release": "tomorrow"}, "'tomorrow' is no way", "say 'log'"),
    (lambda spark: {}, {}, "there is no input", "give a DataFrame"),
    (lambda spark: "events.csv", {}, "a str is no DataFrame", "concordant.local.correlate"),
    (lambda spark: {"A": [1]}, {}, "a list is no DataFrame", "concordant.local.correlate"),
    (lambda spark: [table(spark)], {}, "a list does not say", "give a mapping"),
    (lambda spark: {1: table(spark).drop("topic")}, {}, "1 is no name of a topic", "a mapping"),
    (lambda spark: {"A": table(spark)}, {}, "it has a column 'topic' as well", "drop the column"),
    (lambda spark: {"A": table(spark)}, {"topic": "A"}, "beside a mapping", "leave topic out"),
    (
        lambda spark: {"A": table(spark).drop("topic"), "B": stream(spark)},
        {"release": "log"},
        "some of the DataFrames are streams",
        "read all of them",
    ),
    (
        lambda spark: {
            "A": table(spark).drop("topic"),
            "B": table(spark.newSession()).drop("topic"),
        },
        {},
        "several sessions",
        "with one session",
    ),
]


@pytest.mark.parametrize(("made", "options", "message", "hint"), WRONG, ids=[w[2] for w in WRONG])
def test_what_does_not_go_together_is_refused_in_a_sentence(
    spark: Any, made: Callable[[Any], Any], options: dict[str, Any], message: str, hint: str
) -> None:
    given = made(spark)
    for asked in (correlate, explain):
        with pytest.raises(UsageError) as told:
            asked(given, QUESTION, **options)
        assert message in told.value.message
        assert hint in told.value.hint


def test_explain_takes_whatever_correlate_takes(spark: Any) -> None:
    given: Options = {
        "match": "recent",
        "consume": "matched",
        "attributes": "*",
        "bad": "skip",
        "unique": "1 min",
        "select": ["key"],
        "scan": "jvm",
        "topic": None,
    }
    assert correlate(table(spark), QUESTION, **given).columns == ["key"]
    assert "read by Spark" in explain(table(spark), QUESTION, **given)
    told = explain(stream(spark), "A then A[2]", topic="A", release="watermark 1 s")
    assert told.splitlines()[-1] == "a stream, released by watermark 1 s; state in 16 buckets"


def test_dataframes_of_one_session_are_together_whoever_made_them(spark: Any) -> None:
    one, other = table(spark).drop("topic"), table(spark).select("seq", "time", "v")
    assert correlate({"A": one, "B": other}, "A.v = B.v").count() == len(ROWS)


BAD = [("A", "s", 3, 3_000_000, 7), ("A", "s", 9, None, 9)]


@pytest.mark.parametrize("question", [QUESTION, f"one: {QUESTION}\ntwo: A.v > 4"])
def test_rows_that_were_set_aside_stand_beside_relations(spark: Any, question: str) -> None:
    mixed = table(spark, ROWS[:3] + BAD + ROWS[3:])
    found = correlate(mixed, question, aside=True).collect()
    told = {(row.what, row.events[0].seq): row for row in found if row.what}
    assert sorted(told) == [("bad", 9), ("repeated", 3)]
    assert told["bad", 9].reason == "the time is null, missing or no ISO 8601 text"
    relations = sorted(row.id for row in found if not row.what)
    assert relations == sorted(
        row.id for row in correlate(mixed, question, bad="skip").select("id").collect()
    )
    chosen = correlate(mixed, question, aside=True, select=["id", "events.seq"]).collect()
    assert sorted((row.what, row.events[0].seq) for row in chosen if row.what) == sorted(told)


class Streamed:
    """Two micro-batches of one source, the second with a late and a repeated event."""

    def __init__(self, spark: Any, folder: Path, **options: Any) -> None:
        batches = [ROWS[:4], [*ROWS[4:], ("A", "s", 0, 0, 0), ROWS[5]]]
        for rows in batches:
            table(spark, rows).coalesce(1).write.mode("append").parquet(str(folder / "in"))
        read = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        found = correlate(read.parquet(str(folder / "in")), QUESTION, bucket_count=2, **options)
        writer = found.writeStream.format("memory").queryName("streamed")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        self.query = writer.trigger(availableNow=True).start()
        self.query.awaitTermination()
        self.rows = spark.table("streamed").collect()

    def counted(self, metrics: str) -> dict[str, int]:
        """The sums of what was observed."""
        sums: dict[str, int] = {}
        for progress in self.query.recentProgress:
            for name, count in progress.observedMetrics[metrics].asDict().items():
                sums[name] = sums.get(name, 0) + count
        return sums


def test_what_a_stream_sets_aside_is_observed(spark: Any, tmp_path: Path) -> None:
    found = Streamed(spark, tmp_path, release="log")
    assert found.counted("concordant") == {
        "events": 6,
        "bad": 0,
        "late": 0,
        "repeated": 2,
        "capped": 0,
        "long_searches": 0,
    }
    assert [row.A_1.seq for row in found.rows] == [1, 3, 5]


def test_what_a_stream_sets_aside_stands_beside_its_relations(spark: Any, tmp_path: Path) -> None:
    options = {"release": "watermark 0 s", "metrics": "mine", "aside": True}
    found = Streamed(spark, tmp_path, **options)
    assert [(row.what, row.events[0].seq) for row in found.rows if row.what] == [("late", 0)]
    counts = found.counted("mine")
    assert (counts["late"], counts["bad"]) == (1, 0)
    assert any(row.what is None for row in found.rows)
