"""Columns of any name and type: what Spark and the language call by the same name is one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from concordant.errors import UsageError
from concordant.local import correlate as local
from concordant.spark import correlate
from concordant.spark.state_store import PROVIDER, ROCKSDB

BASE = "topic string, source string, seq bigint, time bigint"


def events(spark: Any, columns: str, *values: Any) -> Any:
    """Events of topic A, a millisecond apart, one for each value of the columns."""
    rows = [("A", "s", n, n * 1_000, *row) for n, row in enumerate(values, 1)]
    return spark.createDataFrame(rows, f"{BASE}, {columns}")


def ids(found: Any) -> list[list[str]]:
    slots = found.columns[found.columns.index("tie") + 1 :]
    return sorted([row[slot].id for slot in slots if row[slot]] for row in found.collect())


NESTED = "a struct<b: int, `c d`: string>"


@pytest.mark.parametrize(
    "question",
    [
        "A[1].a.b < A[2].a.b",
        "A[1].a.b < A[2].a.b partition by a.`c d`",
        "A[1].a.b = 1 and A[2].a.b = 2",
        "A[1].a.`c d` = 'x' and A[2].a.`c d` = 'x'",
    ],
)
def test_nested_values_are_read_by_dotted_names(spark: Any, question: str) -> None:
    frame = events(spark, NESTED, ((1, "x"),), ((2, "x"),), ((0, "y"),))
    assert ids(correlate(frame, question)) == [["s:1", "s:2"]]


def test_nested_values_are_shown_by_dotted_names(spark: Any) -> None:
    frame = events(spark, NESTED, ((1, "x"),), ((2, "y"),))
    row = correlate(frame, "A then A[2]", attributes="*").first()
    assert row.A_1.asDict() == row.A_1.asDict() | {"a.b": 1, "a.c d": "x"}
    several = correlate(frame, "one: A[1] then A[2]\ntwo: A.a.b = 7", attributes=["a.b"])
    assert [one["a.b"] for one in several.first().events] == [1, 2]


def test_a_part_of_a_struct_is_not_taken_for_a_column_of_an_aliased_table(spark: Any) -> None:
    frame = events(spark, "a struct<b: int>, b int", ((1,), 8), ((2,), 7)).alias("a")
    assert ids(correlate(frame, "A[1].a.b < A[2].a.b")) == [["s:1", "s:2"]]
    assert ids(correlate(frame, "A[1].b < A[2].b")) == []


def test_names_with_dots_backticks_and_signs_are_names(spark: Any) -> None:
    names = ["a.b", "c`d", "e f", "Ü%41%", "Q", "\U0001f600"]
    columns = ", ".join(f"`{name.replace('`', '``')}` int" for name in names)
    frame = events(spark, columns, range(6), range(1, 7))
    shown = correlate(frame, "A[1] then A[2]", attributes="*").first()
    for number, name in enumerate(names):
        assert (shown.A_1[name], shown.A_2[name]) == (number, number + 1)
        asked = name if name == "a.b" else f"`{name.replace('`', chr(92) + '`')}`"
        assert ids(correlate(frame, f"A[1].{asked} < A[2].{asked}")) == [["s:1", "s:2"]]


def test_topics_whose_columns_differ_in_case_only_keep_them_apart(spark: Any) -> None:
    frames = {
        "A": events(spark, "Price int", (1,)).drop("topic"),
        "B": events(spark, "price int", (0,), (1,)).drop("topic"),
    }
    frames["B"] = frames["B"].selectExpr("'b' source", "seq", "time", "price")
    found = correlate(frames, "A.Price = B.price", attributes=[]).collect()
    assert [(row.A.id, row.B.id) for row in found] == [("s:1", "b:2")]


def test_columns_that_spark_cannot_tell_apart_are_refused_if_somebody_asks(spark: Any) -> None:
    frame = events(spark, "Price int, price int, a struct<v: int, V: int>", (1, 2, (3, 4)))
    assert correlate(frame, "A").count() == 1
    assert "Price" not in correlate(frame, "A", attributes="*").schema["A"].dataType.names
    for question, name in [("A.Price > 0", "Price"), ("A.a.V > 0", "a.V")]:
        with pytest.raises(UsageError, match=f"there are two columns '{name}'"):
            correlate(frame, question)
    with pytest.raises(UsageError, match="there are two columns 'price'"):
        correlate(frame, "A", attributes="price")
    with pytest.raises(UsageError, match="there are two columns 'price'"):
        correlate(frame, "A partition by price")
    twice = events(spark, "`a.b` int, a struct<b: int>", (1, (2,)))
    assert correlate(twice, "A").count() == 1
    with pytest.raises(UsageError, match=r"there are two columns 'a\.b'"):
        correlate(twice, "A.a.b > 0")
    with pytest.raises(UsageError, match="there are two columns 'TIME'"):
        correlate(frame.selectExpr("*", "1L TIME"), "A", time="TIME")


def test_where_case_counts_columns_that_differ_in_it_are_two(spark: Any) -> None:
    frame = events(spark, "Price int, price int", (1, 2), (2, 1))
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert ids(correlate(frame, "A[1].Price < A[2].Price", attributes=[])) == [["s:1", "s:2"]]
        assert ids(correlate(frame, "A[1].price < A[2].price", attributes=[])) == []
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.parametrize(
    ("renamed", "options", "message", "hint"),
    [
        ({}, {"time": "TIME"}, "there is no column 'TIME' for the time", "did you mean 'time'?"),
        ({"seq": "Seq"}, {}, "there is no column 'seq' for the seq", "did you mean 'Seq'?"),
        ({"topic": "Topic"}, {}, "there is no column 'topic' for the topic", "topic_column='…'"),
        ({"source": "src"}, {"source": "source"}, "", ""),
        ({}, {"source": "origin"}, "there is no column 'origin' for the source", "source='…'"),
    ],
)
def test_a_column_that_is_not_there_is_told_with_the_one_that_was_meant(
    spark: Any, renamed: dict[str, str], options: dict[str, str], message: str, hint: str
) -> None:
    frame = events(spark, "v int", (1,)).withColumnsRenamed(renamed)
    if not message:
        assert correlate(frame, "A", **options).count() == 1
        return
    with pytest.raises(UsageError) as told:
        correlate(frame, "A", **options)
    assert message in told.value.message
    assert hint in told.value.hint


@pytest.mark.parametrize("topic", ["key", "id", "at", "tie", "Position", "EVENTS", "what"])
def test_a_slot_with_the_name_of_another_column_leaves_the_events_in_an_array(
    spark: Any, topic: str
) -> None:
    frame = events(spark, "v int", (1,), (2,)).drop("topic")
    found = correlate(frame, f"{topic}.v > 1", topic=topic)
    if topic == "EVENTS":
        assert found.first().EVENTS.v == 2
        return
    assert [one.v for one in found.first().events] == [2]
    chosen = correlate(frame, f"{topic}.v > 1", topic=topic, select=["events.seq"])
    assert chosen.first().asDict(recursive=True) == {"events": [{"seq": 2}]}


@pytest.mark.parametrize("question", ["A then a", "A[1] then A[2] or A_1"])
def test_slots_that_spark_cannot_tell_apart_leave_the_events_in_an_array(
    spark: Any, question: str
) -> None:
    frame = spark.createDataFrame(
        [(topic, "s", n, n) for n, topic in enumerate(["A", "a", "A", "A_1"])], BASE
    )
    found = correlate(frame, question)
    assert found.columns[-1] == "events"
    assert found.first().events[0].id == "s:0"


def test_attributes_that_an_event_cannot_be_shown_with_are_refused(spark: Any) -> None:
    frame = events(spark, "v int", (1,), (2,)).selectExpr("seq", "time", "v Topic")
    with pytest.raises(UsageError, match="cannot be shown with 'topic' and 'Topic'") as told:
        correlate(frame, "A.Topic > 1", topic="A")
    assert "attributes=" in told.value.hint
    found = correlate(frame, "A.Topic > 1", topic="A", attributes=[])
    assert found.first().A.id == "table:2"


TEXTS = """2024-01-01|2024-01-01T00:00:00,5Z|2024-W01-1|2024W011T10|20240101|20240101T101112Z
2024-01-01T10:00+0530|2024-01-01T10:00:00+05|2024-01-01T24:00:00Z|10000-01-01T00:00:00Z|+10000-01-01
 2024-01-01T10:00:00Z|2024-01-01T10:00:00Z |2024-01-01 10|2024-01-01T10:00:00.1234567Z
2024-01-01T10:00:00.1234560Z|2024-01-01T10:00:00+19:00|2024-01-01T10:00:00+23:59|0000-01-01
2024-02-30T00:00:00Z|2024-01-01T10:00:60Z|2024-01-01t10:00:00z|1704103200000000| 1704103200000000
+17|-5|1.5|1e3|-9223372036854775808|99999999999999999999|2024-1-1|2024-01-01T10:00:00+05:30:15
2024-01-01T10||now|today|epoch|12:00|2024-001|2024-01-01T10:00:00.5|2024-13-01T00:00:00Z"""
"""Times as texts: forms of ISO 8601 that are rare, forms that look like it, integers."""

SETTINGS = [
    {},
    {"spark.sql.session.timeZone": "America/New_York"},
    {"spark.sql.legacy.timeParserPolicy": "LEGACY", "spark.sql.ansi.enabled": "false"},
]


@pytest.fixture(params=SETTINGS, ids=["usual", "zone", "legacy"])
def settings(spark: Any, request: pytest.FixtureRequest) -> Iterator[None]:
    before = {key: spark.conf.get(key) for key in request.param}
    for key, value in request.param.items():
        spark.conf.set(key, value)
    yield
    for key, value in before.items():
        spark.conf.set(key, value)


def judged(text: str) -> int | None:
    """The time of an event with this text, as the local engine has it."""
    row = {"topic": "A", "source": "s", "seq": 1, "time": text}
    try:
        (found,) = local([row, row | {"seq": 2, "source": "t"}], "A[1] then A[2]")
    except UsageError:
        return None
    return found.events[0].time


def instants(found: Any) -> dict[int, int]:
    rows = found.selectExpr("tie.seq", "unix_micros(at)", "unix_micros(A.time)").collect()
    assert all(at == time for _, at, time in rows)
    return {seq: at for seq, at, _ in rows}


def test_times_that_are_texts_are_judged_as_the_local_engine_judges_them(
    spark: Any, settings: None
) -> None:
    texts = [text for line in TEXTS.splitlines() for text in line.split("|")]
    rows = [("A", "s", seq, text) for seq, text in enumerate(texts)]
    frame = spark.createDataFrame(rows, "topic string, source string, seq bigint, time string")
    expected = {seq: time for seq, text in enumerate(texts) if (time := judged(text)) is not None}
    assert 10 < len(expected) < len(texts) - 10
    assert instants(correlate(frame, "A", bad="skip")) == expected
    told = correlate(frame, "A.seq < 0", aside=True).select("what", "events.seq").collect()
    assert sorted(told) == [("bad", [seq]) for seq in range(len(texts)) if seq not in expected]
    assert instants(correlate(frame, "A.seq >= 0 and A.time > '1970-01-01'", bad="skip")) == {
        seq: time for seq, time in expected.items() if time > 0
    }


def test_times_without_a_zone_and_dates_are_utc_in_every_session(
    spark: Any, settings: None
) -> None:
    moments = ["2024-03-10 02:30:00", "2024-11-03 01:30:00", "1900-01-01 01:02:03.000004"]
    wanted = {n: judged(moment) for n, moment in enumerate(moments)}
    parts = [f"SELECT {n}L seq, timestamp_ntz'{m}' time" for n, m in enumerate(moments)]
    frame = spark.sql(" UNION ALL ".join(parts))
    assert instants(correlate(frame, "A", topic="A")) == wanted
    dates = spark.sql("SELECT 1L seq, date'2024-03-10' time UNION ALL SELECT 2L, date'0001-01-01'")
    wanted = {1: judged("2024-03-10"), 2: judged("0001-01-01")}
    assert instants(correlate(dates, "A", topic="A")) == wanted
    far = spark.sql("SELECT 1L seq, date_add(date'2024-03-10', 2147000000) time")
    assert correlate(far, "A", topic="A", bad="skip").count() == 0


def test_tables_with_times_as_texts_and_as_numbers_are_put_in_one_order(spark: Any) -> None:
    text = spark.createDataFrame([("a", 1, "1970-01-01T00:00:02Z"), ("a", 2, "5000000")])
    number = spark.createDataFrame([("b", 1, 1_000_000), ("b", 2, 3_000_000)])
    names = ("source", "seq", "time")
    frames = {"A": text.toDF(*names), "B": number.toDF(*names)}
    assert ids(correlate(frames, "B then A consume matched")) == [["a:1", "b:1"], ["a:2", "b:2"]]


def test_a_stream_with_nested_names_and_times_as_texts_loses_nothing(
    spark: Any, tmp_path: Any
) -> None:
    rows = [("A", "s", n, f"2024-01-01T00:00:{n:02}", (n % 2, n)) for n in range(20)]
    schema = "topic string, source string, seq bigint, time string, A struct<k: int, `v.V`: int>"
    spark.createDataFrame(rows, schema).coalesce(1).write.json(str(tmp_path / "in"))
    question = "A[1].A.`v.V` < A[2].A.`v.V` consume matched partition by A.k, time"
    stream = spark.readStream.schema(schema).json(str(tmp_path / "in"))
    spark.conf.set(PROVIDER, ROCKSDB)
    found = correlate(stream, "A[1] then A[2] consume matched partition by A.k", release="log")
    query = (
        found.writeStream.format("memory")
        .queryName("nested")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert spark.table("nested").count() == 10
    assert correlate(spark.createDataFrame(rows, schema), question).count() == 0
