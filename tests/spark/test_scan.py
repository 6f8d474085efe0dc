"""Files read by the workers themselves: the same relations, and a choice that explains itself."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from concordant.errors import UsageError
from concordant.model.kind import Kind
from concordant.model.subscription import Policy
from concordant.spark import correlate, explain
from concordant.spark.correlate import ask, by_slot, relations
from concordant.spark.session import explained
from tests.buckets import kernel_summaries, ordered
from tests.campaign.compare import case_of
from tests.generators import ALL_POLICIES, Case
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
    frame = spark.createDataFrame([tuple(row.values()) for row in rows], f"{_SCHEMA}, k {kind}")
    pq.write_table(frame.toArrow(), path)
    written = spark.read.parquet(str(path))
    question = "one: A then B partition by k\ntwo: A then B\nthree: B then A partition by source, k"
    by_spark = collected(correlate(written, question, scan="jvm"))
    assert collected(correlate(written, question, scan="worker")) == by_spark
    assert len(by_spark) > 20


_SCHEMA = "topic string, source string, seq bigint, time bigint"


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
    pq.write_table(spark.createDataFrame(rows, _SCHEMA).toArrow(), tmp_path / "rows.parquet")
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
    frame = spark.createDataFrame(rows, f"{_SCHEMA}, id string, k bigint")
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


def test_the_choice_and_its_reason_can_be_read(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    frame = spark.createDataFrame([("A", "x", 1, 1)], _SCHEMA)
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
    frame = spark.createDataFrame([("A", "x", 1, 1), ("B", "x", 2, 2)], _SCHEMA)
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
        (tmp_path / "2.parquet").write_bytes(b"PAR1junkjunkPAR1")
        with pytest.raises(UsageError, match=r"2\.parquet cannot be read: "):
            correlate(frame, "A then B")


def test_what_workers_would_have_to_hold_is_bounded(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(
        spark.createDataFrame([("A", "x", 1, 1)], _SCHEMA).toArrow(), tmp_path / "rows.parquet"
    )
    written = spark.read.parquet(str(tmp_path / "rows.parquet"))
    monkeypatch.setattr("concordant.spark.scan.BYTES_MAX", 0)
    assert "that workers would hold" in explain(written, "A")
    monkeypatch.setattr("concordant.spark.scan.TASK_COUNT_MAX", 1)
    assert "would each read every file" in explain(written, "A partition by source")
    monkeypatch.setattr("concordant.spark.scan.FILE_COUNT_MAX", 0)
    assert "1 files are more than 0" in explain(written, "A")
