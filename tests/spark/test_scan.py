"""Files read by the workers themselves: the same relations, and a choice that explains itself."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import LongType, StructType

from concordant.errors import UsageError
from concordant.model.kind import Kind
from concordant.model.subscription import Policy
from concordant.spark import correlate, explain
from concordant.spark.asked import ask
from concordant.spark.correlate import by_slot, relations
from concordant.spark.session import explained
from tests.buckets import kernel_summaries, ordered
from tests.campaign.compare import case_of
from tests.generators import ALL_POLICIES, Case
from tests.spark.folders import SCHEMA, event_rows
from tests.spark.frames import collected, tables


def _files(spark: Any, folder: Path, case: Case) -> dict[str, Any]:
    """Each topic in two files, the later rows first."""
    found = {}
    for name, table in tables(case).items():
        place = folder / name
        place.mkdir()
        half = table.num_rows // 2
        pq.write_table(table.slice(half), place / "1.parquet")
        pq.write_table(table.slice(0, half), place / "2.parquet")
        found[name] = spark.read.parquet(str(place))
    return found


@pytest.mark.parametrize("policy", ALL_POLICIES[::4], ids=str)
def test_workers_give_what_the_kernel_gives(spark: Any, tmp_path: Path, policy: Policy) -> None:
    rng = Random(str(policy))
    for _ in range(100):
        case = ordered(case_of(6, policy, rng.randrange(1_000)))
        if any(Kind.NULL in topic.attributes.values() for topic in case.topics):
            continue  # Parquet has no column without a type
        expected = kernel_summaries(case)
        if len(expected) > 2:
            break
    found = correlate(_files(spark, tmp_path, case), case.subscriptions, scan="worker")
    assert collected(found) == expected, str(case)


KEYS = {
    "string": ["a", "b", "", None, "ä"],
    "double": [0.0, -0.0, math.nan, math.inf, None, 1.5],
    "boolean": [True, False, None],
    "bigint": [1, -1, 2**62, None],
}


@pytest.mark.parametrize("kind", KEYS)
def test_rows_of_one_partition_meet_in_one_task(spark: Any, tmp_path: Path, kind: str) -> None:
    rng = Random(kind)
    rows = [
        {
            "topic": rng.choice(["A", "B", "C"]),
            "source": rng.choice(["x", "y"]),
            "seq": number,
            "time": rng.randrange(100),
            "k": rng.choice(KEYS[kind]),
        }
        for number in range(200)
    ]
    path = tmp_path / "rows.parquet"
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], f"{SCHEMA}, k {kind}")
    pq.write_table(frame.toArrow(), path)
    written = spark.read.parquet(str(path))
    question = "one: A then B partition by k\ntwo: A then B\nthree: B then A partition by source, k"
    by_spark = collected(correlate(written, question, scan="jvm"))
    assert collected(correlate(written, question, scan="worker")) == by_spark
    assert len(by_spark) > 20


def test_rows_that_cannot_be_events_are_told_alike(spark: Any, tmp_path: Path) -> None:
    rows = [
        ("A", "x", 1, 1),
        ("B", "x", 2, 2),
        (None, "x", 3, 3),
        ("", "x", 4, 4),
        ("A", None, 5, 5),
        ("A", "", 6, 6),
        ("A", "x", None, 7),
        ("A", "x", 8, None),
        ("A", "x", 1, 1),
        ("Z", None, None, None),
    ]
    pq.write_table(spark.createDataFrame(rows, SCHEMA).toArrow(), tmp_path / "rows.parquet")
    written = spark.read.parquet(str(tmp_path / "rows.parquet"))
    told = {}
    for scan in ("jvm", "worker"):
        answers = ask(written, "A then B", bad="skip").answers(scan).toArrow().to_pylist()
        told[scan] = sorted(str(row) for row in answers if row["what"] != "counts")
    assert told["worker"] == told["jvm"]
    assert sum("'what': 'bad'" in row for row in told["worker"]) == 6
    with pytest.raises(PySparkException) as raised:
        correlate(written, "A then B", scan="worker").collect()
    assert "a row cannot be an event" in str(explained(raised.value))


@pytest.mark.parametrize("ids", [("own", "other", None, ""), ("own",), (None,)], ids=str)
def test_slots_and_given_ids_are_the_same_whoever_makes_them(
    spark: Any, tmp_path: Path, ids: tuple[str | None, ...]
) -> None:
    rng = Random(5)
    rows: list[tuple[Any, ...]] = []
    given: dict[str, str] = {}
    for number in range(300):
        kind = rng.choice(ids)
        id = {"own": f"x:{number}", "other": f"given {number}"}.get(str(kind), kind)
        given[f"x:{number}"] = id or f"x:{number}"
        rows.append((rng.choice("ABC"), "x", number, number, id, rng.randrange(4)))
    frame = spark.createDataFrame(rows, f"{SCHEMA}, id string, k bigint")
    pq.write_table(frame.toArrow(), tmp_path / "rows.parquet", row_group_size=70)
    written = spark.read.parquet(str(tmp_path / "rows.parquet"))
    question = "A and B or A[1] and A[2] and C partition by k"
    asked = ask(written, question)
    ways = {
        "workers": correlate(written, question, scan="worker"),
        "Spark": correlate(written, question, scan="jvm"),
        "slots by Spark": by_slot(relations(asked.answers("jvm")), asked.job),
    }
    found = {way: one.toArrow() for way, one in ways.items()}
    lists = {way: sorted(table.to_pylist(), key=str) for way, table in found.items()}
    assert lists["workers"] == lists["Spark"] == lists["slots by Spark"]
    assert len({str(table.schema.remove_metadata()) for table in found.values()}) == 1
    slots = [row[slot] for row in lists["Spark"] for slot in ("A_1", "A_2", "B", "C")]
    events = [event for event in slots if event is not None]
    assert len(events) > 100 and len(events) < len(slots)
    assert all(event["id"] == given[f"{event['source']}:{event['seq']}"] for event in events)


def test_times_of_every_type_are_the_same_instants(spark: Any, tmp_path: Path) -> None:
    moments = [1_772_442_000_000_000, 1_772_528_400_000_000]
    for number, kind in enumerate(
        (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.date32())
    ):
        times = pa.array(moments, pa.timestamp("us")).cast(kind, safe=False)
        if pa.types.is_date(kind):
            times = pa.array(moments, pa.timestamp("us")).cast(pa.date32(), safe=False)
        table = pa.table({"source": ["x", "x"], "seq": [1, 2], "time": times})
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path)
        frame = spark.read.parquet(str(path))
        by_spark = collected(correlate(frame, "A", topic="A", scan="jvm"))
        assert collected(correlate(frame, "A", topic="A", scan="worker")) == by_spark


def test_days_and_times_beyond_all_microseconds_are_told(spark: Any, tmp_path: Path) -> None:
    days = pa.array([2**31 - 1, -(2**31), 106_751_991, 106_751_992], pa.int32()).cast(pa.date32())
    told = {}
    for scan in ("jvm", "worker"):
        for role in ("time", "v"):
            rows = event_rows(0, 4, v=days)
            if role == "time":
                rows = rows.drop_columns("time").rename_columns({"v": "time"})
            pq.write_table(rows, tmp_path / f"{role}.parquet")
            frame = spark.read.parquet(str(tmp_path / f"{role}.parquet"))
            asked = ask(frame, "A" if role == "time" else "A partition by v", bad="skip")
            answers = asked.answers(scan).toArrow().select(["what", "reason", "key", "id"])
            found = [str(row) for row in answers.to_pylist() if row["what"] != "counts"]
            told[scan, role] = sorted(found)
    for role in ("time", "v"):
        assert told["worker", role] == told["jvm", role] and len(told["jvm", role]) == 2
    assert "'what': 'bad'" in told["jvm", "time"][0]
    moments = pa.array([2**60, 0, 1, 2], pa.timestamp("ms", "UTC"))
    pq.write_table(event_rows(0, 4, v=moments), tmp_path / "moments.parquet")
    frame = spark.read.parquet(str(tmp_path / "moments.parquet"))
    with pytest.raises(Exception, match="does not fit 64 bits") as raised:
        correlate(frame, "A partition by v", scan="worker").collect()
    assert isinstance(explained(raised.value), UsageError)


def test_the_choice_and_its_reason_can_be_read(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    frame = spark.createDataFrame([("A", "x", 1, 1)], SCHEMA)
    pq.write_table(frame.toArrow(), path)
    written = spark.read.parquet(str(path))
    question = "A then B partition by source"
    assert "read by the workers" in explain(written, question)
    assert explain(written.filter("seq > 0"), question).endswith(
        "read by Spark, filtered there and shuffled: table: it is no file as it is, but computed"
    )
    assert "that is what was asked for" in explain(written, question, scan="jvm")
    with pytest.raises(UsageError, match="cannot read the events themselves"):
        correlate(frame, question, scan="worker")
    with pytest.raises(UsageError, match="'perhaps' is unknown"):
        correlate(frame, question, scan="perhaps")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_a_file_that_is_gone_or_damaged_is_told_with_its_path(
    spark: Any, tmp_path: Path, form: str
) -> None:
    frame = spark.createDataFrame([("A", "x", 1, 1), ("B", "x", 2, 2)], SCHEMA)
    rows = frame.toArrow()
    for name in ("1", "2"):
        path = tmp_path / f"{name}.{form}"
        if form == "parquet":
            pq.write_table(rows, path)
        else:
            path.write_text("A,x,1,1\nB,x,2,2\n")
    frame = spark.read.schema(frame.schema).format(form).load(str(tmp_path))
    found = correlate(frame, "A then B", scan="worker")
    (tmp_path / f"2.{form}").unlink()
    with pytest.raises(UsageError, match=rf"2\.{form} is gone since the DataFrame was made"):
        correlate(frame, "A then B")
    with pytest.raises(Exception, match="is gone since") as raised:
        found.collect()
    assert isinstance(explained(raised.value), UsageError)
    if form == "parquet":
        size = (tmp_path / "1.parquet").stat().st_size
        (tmp_path / "2.parquet").write_bytes(b"PAR1".center(size - 4, b"?") + b"PAR1")
        with pytest.raises(UsageError, match=r"2\.parquet cannot be read: "):
            correlate(frame, "A then B")


def test_columns_that_spark_reads_in_ways_of_their_own_are_left_to_it(
    spark: Any, tmp_path: Path
) -> None:
    """A value for cells that are missing, and columns by their numbers in a file."""
    (tmp_path / "rows.csv").write_text("A,x,1,1\nB,x,2,2,7\nB,x,3,3,8")
    rows = event_rows(0, 4, k=[1, 1, 2, 2], j=[3, 4, 4, 3])
    numbered = [
        one.with_metadata({"PARQUET:field_id": f"{n}"}) for n, one in enumerate(rows.schema)
    ]
    pq.write_table(rows.cast(pa.schema(numbered)), tmp_path / "rows.parquet")
    ways = {"csv": {"EXISTS_DEFAULT": "7"}, "parquet": {"parquet.field.id": 5}}
    spark.conf.set("spark.sql.parquet.fieldId.read.enabled", "true")
    try:
        for form, way in ways.items():
            schema = StructType.fromDDL(SCHEMA).add("k", LongType(), metadata=way)
            frame = spark.read.schema(schema).format(form).load(str(tmp_path / f"rows.{form}"))
            assert "Spark reads the column k in a way of its own" in explain(frame, KEYED)
            found = correlate(frame, KEYED, select=["key", "A.id"]).collect()
            assert [row["A"]["id"] for row in found] == ["x:1" if form == "csv" else "x:0"]
    finally:
        spark.conf.unset("spark.sql.parquet.fieldId.read.enabled")


KEYED = "A then B partition by k"


def test_parquet_of_every_kind_is_read_as_spark_reads_it(spark: Any, tmp_path: Path) -> None:
    """By the workers, or with a reason by Spark."""
    numbers = list(range(20))
    old = pa.array([datetime(1500, 1, 1, n % 3, tzinfo=UTC) for n in numbers])
    small = [n % 3 for n in numbers]
    texts = pa.array([f"{n % 3}" for n in numbers])
    by_workers = {
        "byte": {"v": pa.array(small, pa.int8())},
        "short": {"v": pa.array(small, pa.int16())},
        "int": {"v": pa.array(small, pa.int32())},
        "float": {"v": pa.array(small, pa.float32())},
        "day": {"v": pa.array(small, pa.date32())},
        "ms": {"v": pa.array(small, pa.timestamp("ms", "UTC"))},
        "local": {"v": pa.array(small, pa.timestamp("us"))},
        "old": {"v": old.cast(pa.timestamp("us", "UTC"))},
        "large": {"v": texts.cast(pa.large_string())},
        "codes": {"v": texts.dictionary_encode()},
        "repeating": {"v": pa.DictionaryArray.from_arrays(small, ["p", "p", "q"])},
        "lists": {"v": texts, "w": pa.array([[1]] * 20)},
    }
    by_spark = {
        "uint8": {"v": pa.array(small, pa.uint8())},
        "uint64": {"v": pa.array(small, pa.uint64())},
        "decimal": {"v": pa.array(small, pa.int32()).cast(pa.decimal128(12, 2))},
        "Berlin": {"v": pa.array(small, pa.timestamp("us", "Europe/Berlin"))},
        "view": {"v": texts.cast(pa.string_view())},
    }
    for number, (name, more) in enumerate({**by_workers, **by_spark}.items()):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(event_rows(0, 20, **more), path, row_group_size=7)
        frame = spark.read.parquet(str(path))
        question = "A then B partition by v"
        told = explain(frame, question)
        assert ("read by the workers" in told) == (name in by_workers), (name, told)
        found = {
            scan: correlate(frame, question, attributes="v", scan=scan).toArrow().to_pylist()
            for scan in ("jvm", "auto")
        }
        assert sorted(map(str, found["auto"])) == sorted(map(str, found["jvm"])), name
        assert len(found["jvm"]) > 2


def test_parquet_files_that_differ_are_left_to_spark(spark: Any, tmp_path: Path) -> None:
    def reason(*tables: Any, schema: str = f"{SCHEMA}, v bigint", **options: Any) -> str:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        for number, table in enumerate(tables):
            pq.write_table(table, folder / f"{number}.parquet", **written)
        return explain(spark.read.schema(schema).options(**options).parquet(str(folder)), text)

    written: dict[str, Any] = {}
    text = "A then B partition by v"
    numbers = pa.array(range(20))
    wide, narrow = event_rows(0, 20, v=numbers), event_rows(20, 40, v=numbers.cast(pa.int32()))
    assert "read by the workers" in reason(wide, wide, mergeSchema=True)
    assert "1.parquet has the column v as int32" in reason(wide, narrow)
    assert "1.parquet has no column v" in reason(wide, event_rows(20, 40))
    assert "1.parquet has no column v" in reason(wide, event_rows(20, 40, V=numbers))
    both = pa.table([*wide.columns, numbers], [*wide.column_names, "V"])
    assert "0.parquet has several columns v" in reason(both)
    days = event_rows(0, 20, v=pa.array([date(1500, 1, 1)] * 20))
    with_days = f"{SCHEMA}, v date"
    assert "read by the workers" in reason(days, schema=with_days)
    assert "option datetimerebasemode" in reason(
        days, schema=with_days, datetimeRebaseMode="LEGACY"
    )
    for told in (
        {b"org.apache.spark.version": b"2.4.8"},
        {b"org.apache.spark.legacyDateTime": b""},
    ):
        assert "versions before 3" in reason(days.replace_schema_metadata(told), schema=with_days)
        assert "read by the workers" in reason(wide.replace_schema_metadata(told))
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInRead", "LEGACY")
    try:
        assert "versions before 3" in reason(days, schema=with_days)
        assert "read by the workers" in reason(wide)
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInRead")
    written = {"use_deprecated_int96_timestamps": True}
    moments = event_rows(0, 20, v=pa.array(range(20), pa.timestamp("us")))
    assert "has the column v as timestamp[ns]" in reason(moments, schema=f"{SCHEMA}, v timestamp")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_inputs_by_topic_without_a_key_are_all_read(spark: Any, tmp_path: Path, form: str) -> None:
    frames = {}
    for topic in "AB":
        rows = event_rows(0, 40).filter(pa.compute.equal(event_rows(0, 40)["topic"], topic))
        rows = rows.drop_columns(["topic", "source"])
        folder = tmp_path / topic
        spark.createDataFrame(rows).write.format(form).save(str(folder))
        frames[topic] = spark.read.format(form).schema("seq bigint, time bigint").load(str(folder))
    for question in ("A then B", "one: A then B\ntwo: A[1] and A[2]\nthree: B"):
        expected = collected(correlate(frames, question, scan="jvm"))
        assert collected(correlate(frames, question, scan="worker")) == expected
        assert len(expected) >= 20


def test_what_workers_would_have_to_hold_is_bounded(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(
        spark.createDataFrame([("A", "x", 1, 1)], SCHEMA).toArrow(), tmp_path / "rows.parquet"
    )
    written = spark.read.parquet(str(tmp_path / "rows.parquet"))
    monkeypatch.setattr("concordant.spark.readable.BYTES_MAX", 0)
    assert "that workers would hold" in explain(written, "A")
    monkeypatch.setattr("concordant.spark.readable.TASK_COUNT_MAX", 1)
    assert "would each read every file" in explain(written, "A partition by source")
    monkeypatch.setattr("concordant.spark.listed.FILE_COUNT_MAX", 0)
    assert "1 files are more than 0" in explain(written, "A")
