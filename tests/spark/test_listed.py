"""The files that workers read are those that Spark reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from concordant.errors import UsageError
from concordant.spark import correlate, explain
from concordant.spark.asked import ask
from concordant.spark.listed import Listed, listed
from concordant.spark.pipeline import Pipeline, Question, Sink, Source
from concordant.spark.session import explained
from concordant.spark.sources import open_source
from tests.spark.folders import SCHEMA, event_rows, folder_of_files, reader_of
from tests.spark.frames import collected

QUESTION = "A then B partition by source"


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_are_read_as_often_as_spark_reads_them(spark: Any, tmp_path: Path, form: str) -> None:
    folder = folder_of_files(tmp_path / "a;b#c?d %41 ä", form)
    one = folder / f"1.{form}"
    for paths in ([folder], [one, one], [folder, one], [f"{tmp_path}/a*/*.{form}", one]):
        frame = reader_of(spark, form, *paths)
        asked = ask(frame, "A then B partition by source", bad="skip")
        told = [
            sorted(str(row) for row in asked.answers(scan).toArrow().to_pylist())
            for scan in ("jvm", "worker")
        ]
        told = [[row for row in rows if "'what': 'counts'" not in row] for rows in told]
        assert told[0] == told[1], paths
        assert len(told[0]) > 15 and any("repeated" in row for row in told[0]) == len(paths) - 1


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_that_spark_lists_and_never_reads_are_no_input(
    spark: Any, tmp_path: Path, form: str
) -> None:
    """Summaries of Parquet, and whatever is named like them: rows that Spark does not have."""
    folder = folder_of_files(tmp_path / "rows", form)
    other = folder_of_files(tmp_path / "other", form)
    for name in (f"_metadata.{form}", f"_common_metadata.{form}"):
        (folder / name).write_bytes((other / f"0.{form}").read_bytes())
    (folder / f"_metadata=.{form}").write_bytes((other / f"1.{form}").read_bytes())
    if form == "parquet":
        for name in ("_metadata", "_common_metadata"):
            pq.write_metadata(event_rows(0, 1).schema, folder / name)
    frame = reader_of(spark, form, folder)
    asked = ask(frame, "A then B partition by source", bad="skip")
    told = {}
    for scan in ("jvm", "worker"):
        rows = asked.answers(scan).toArrow().to_pylist()
        told[scan] = sorted(str(row) for row in rows if row["what"] != "counts")
    assert told["worker"] == told["jvm"]
    assert sum("'what': 'repeated'" in row for row in told["jvm"]) == 20


def test_workers_read_the_parquet_files_of_a_pipeline(spark: Any, tmp_path: Path) -> None:
    source = Source(kind="parquet", path=str(folder_of_files(tmp_path / "rows", "parquet")))
    question = Question(subscriptions=QUESTION)
    pipeline = Pipeline(question=question, source=[source], sink=[Sink(kind="table")])
    frame = open_source(spark, pipeline, source, None)
    assert "read by the workers: 2 tasks scan 2 files" in explain(frame, QUESTION)


def test_many_files_are_no_more_questions_to_the_jvm(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("A,x,1,1")
    client = spark._jvm._gateway_client
    send, sent = client.send_command, 0

    def counted(command: str, *more: Any, **options: Any) -> Any:
        nonlocal sent
        sent += not command.startswith("m\n")  # tells only what Python has let go of
        return send(command, *more, **options)

    monkeypatch.setattr(client, "send_command", counted)
    asked = []
    for count in (1, 40):
        frame = reader_of(spark, "csv", *[path] * count)
        sent = 0
        found = listed(frame)
        asked.append(sent)
        assert isinstance(found, Listed) and found.paths == (str(path),) * count
    assert asked[0] == asked[1]


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_what_comes_between_files_and_workers_is_left_to_spark(
    spark: Any, tmp_path: Path, form: str
) -> None:
    """Cached rows gave no relations at all: their files had no names."""
    folder = folder_of_files(tmp_path / "rows", form)
    frame = reader_of(spark, form, folder)
    frame.createOrReplaceTempView("rows_of_files")
    computed = {
        "filter": frame.filter("seq >= 0"),
        "limit": frame.limit(1_000),
        "sample": frame.sample(fraction=1.0, seed=1),
        "union": frame.union(reader_of(spark, form, folder).filter("false")),
        "hint": frame.hint("broadcast"),
        "join": frame.join(spark.range(1).select("id").withColumnRenamed("id", "n"), how="cross"),
        "name": frame.selectExpr("*", "input_file_name() as file"),
        "view": spark.table("rows_of_files"),
        "alias": frame.alias("other"),
    }
    expected = collected(correlate(frame, QUESTION, scan="worker"))
    assert len(expected) == 20
    for name, one in computed.items():
        assert "it is no file as it is, but computed" in explain(one, QUESTION), name
        assert collected(correlate(one, QUESTION)) == expected, name
    for cached in (frame, reader_of(spark, form, folder)):
        cached.cache()
        try:
            assert "Spark holds it in its cache" in explain(frame, QUESTION)
            assert collected(correlate(frame, QUESTION)) == expected
        finally:
            cached.unpersist()
    assert "read by the workers" in explain(frame, QUESTION)
    (tmp_path / "parted").mkdir()
    folder_of_files(tmp_path / "parted" / "day=1", form)
    parted = spark.read.format(form).schema(f"{SCHEMA}, day int").load(str(tmp_path / "parted"))
    assert "its folders carry values" in explain(parted, QUESTION)
    writer = frame.write.format(form).bucketBy(2, "source").mode("overwrite")
    writer.option("path", str(tmp_path / "table")).saveAsTable("rows_in_buckets")
    try:
        table = spark.table("rows_in_buckets")
        assert "it is no file as it is, but computed" in explain(table, QUESTION)
        assert collected(correlate(table, QUESTION)) == expected
    finally:
        spark.sql("drop table rows_in_buckets")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_that_spark_may_pass_over_are_left_to_it(
    spark: Any, tmp_path: Path, form: str
) -> None:
    folder = folder_of_files(tmp_path / "rows", form)
    frame = reader_of(spark, form, folder)
    expected = collected(correlate(frame, QUESTION, scan="worker"))
    damaged = reader_of(spark, form, folder, ignoreMissingFiles=True)
    assert "with the option ignoremissingfiles" in explain(damaged, QUESTION)
    for name in ("ignoreCorruptFiles", "ignoreMissingFiles"):
        spark.conf.set(f"spark.sql.files.{name}", "true")
        try:
            assert "pass over files that it cannot read" in explain(frame, QUESTION)
            assert collected(correlate(frame, QUESTION)) == expected
        finally:
            spark.conf.unset(f"spark.sql.files.{name}")


@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_files_that_are_not_those_that_spark_listed_are_left_to_it(
    spark: Any, tmp_path: Path, form: str
) -> None:
    folder = folder_of_files(tmp_path / "rows", form)
    frame = reader_of(spark, form, folder)
    found = correlate(frame, QUESTION, scan="worker")
    with (folder / f"1.{form}").open("ab") as file:
        file.write(b"\nA,x,1000,1000")
    assert "its files have changed since Spark listed them" in explain(frame, QUESTION)
    with pytest.raises(Exception, match="has changed") as raised:
        found.collect()
    assert isinstance(explained(raised.value), UsageError)
