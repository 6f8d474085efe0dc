"""What is wrong with sources, rows or a checkpoint is told in a sentence, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from concordant.errors import UsageError
from concordant.local import correlate as local
from concordant.spark import correlate
from concordant.spark.checkpoint import Checkpoint, Commit
from concordant.spark.pipeline import read_pipeline
from concordant.spark.run import Report, run_pipeline
from concordant.spark.session import RunFailed

FIELDS = "topic string, source string, seq bigint, time bigint, k bigint, v bigint"
QUESTION = "up: T[1].v < T[2].v consume matched partition by k"
ROWS = [
    {"topic": "T", "source": "s", "seq": i, "time": i * 1_000, "k": i % 3, "v": i * 7 % 11}
    for i in range(30)
]
POISON = [
    '{"topic": "T", "source": "s", "seq": 90, "time": 3500, "k": "three", "v": 1}',
    "{",
    '{"topic": "T", "source": "s", "seq": 91, "k": 1, "v": 1}',
    '{"topic": "T", "source": "s", "seq": 4, "time": 4000, "k": 1, "v": 9}',
]
"""A wrong type, no JSON, no time, and a place in the order that another event with less has."""


def pipeline(folder: Path, kind: str, *, bad: str = "fail", stream: bool = True) -> Path:
    streaming = """
[stream]
checkpoint = "checkpoint"
release = "frontier"
at_end = "release"
buckets = 2
"""
    path = folder / "pipe.toml"
    path.write_text(f"""
[question]
subscriptions = "{QUESTION}"
[[source]]
kind = "{kind}"
path = "in"
fields = "{FIELDS}"
[bad]
rows = "{bad}"
path = "aside"
[[sink]]
kind = "jsonl"
path = "out"
{streaming if stream else ""}""")
    return path


def run(spark: Any, path: Path) -> Report:
    return run_pipeline(
        read_pipeline(path),
        spark,
        generate=lambda source: source.path,
        show=lambda rows: None,
        told=lambda line: None,
    )


def write(folder: Path, *cuts: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    for number, (start, stop) in enumerate(zip([0, *cuts], [*cuts, len(ROWS)], strict=True)):
        path = folder / "in" / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(ROWS[start:stop]), path)
        os.utime(path, (1_000_000 + number, 1_000_000 + number))


def found(folder: Path) -> list[list[str]]:
    texts = [path.read_text() for path in sorted((folder / "out").glob("[0-9]*.jsonl"))]
    return [json.loads(line)["events"] for text in texts for line in text.splitlines()]


EXPECTED = [list(one.event_ids) for one in local(ROWS, QUESTION)]


def poisoned(folder: Path) -> None:
    lines = [json.dumps(row) for row in ROWS]
    lines[5:5] = POISON
    (folder / "in").mkdir()
    (folder / "in" / "events.jsonl").write_text("\n".join(lines))


@pytest.mark.parametrize("stream", [False, True])
def test_poisoned_rows_are_set_aside_with_their_reasons_and_counted(
    spark: Any, tmp_path: Path, stream: bool
) -> None:
    poisoned(tmp_path)
    report = run(spark, pipeline(tmp_path, "jsonl", bad="skip", stream=stream))
    assert found(tmp_path) == EXPECTED
    assert report.set_aside == {"bad": 3, "repeated": 1}
    assert (report.read, report.counts["events"], report.filtered) == (34, 30, 0)
    aside = [
        json.loads(line)
        for p in tmp_path.glob("aside/*/*.json")
        for line in p.read_text().splitlines()
    ]
    assert sorted((one["what"], str(one.get("seq"))) for one in aside) == [
        ("bad", "90"),
        ("bad", "91"),
        ("bad", "None"),
        ("repeated", "4"),
    ]
    (lost,) = (one for one in aside if one["what"] == "repeated")
    assert lost["attributes"] == {"k": 1, "v": 9}
    reasons = {one["reason"] for one in aside}
    assert any("the source cannot read it" in reason for reason in reasons)
    assert any("the time is null" in reason for reason in reasons)


def test_a_poisoned_row_ends_the_run_if_nothing_else_is_wanted(spark: Any, tmp_path: Path) -> None:
    poisoned(tmp_path)
    with pytest.raises(UsageError) as told:
        run(spark, pipeline(tmp_path, "jsonl", stream=False))
    assert "a row cannot be an event: the " in told.value.message
    assert "bad='skip'" in told.value.hint


def test_a_source_that_is_not_there_is_told_with_its_path(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the source cannot be opened") as told:
        run(spark, pipeline(tmp_path, "parquet"))
    assert str(tmp_path / "in") in str(told.value)


def test_a_file_that_vanishes_ends_the_run_and_the_next_goes_on_when_it_is_back(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 10, 20)
    path = pipeline(tmp_path, "parquet")
    second, away = tmp_path / "in" / "1.parquet", tmp_path / "1.parquet"
    own = Checkpoint.told

    def telling(*arguments: Any) -> Any:
        second.rename(away)  # while the first micro-batch is at work
        return own(*arguments)

    monkeypatch.setattr(Checkpoint, "told", telling)
    with pytest.raises(RunFailed) as told:
        run(spark, path)
    assert "1.parquet" in str(told.value)
    assert "\n" not in told.value.message
    monkeypatch.undo()
    away.rename(second)
    os.utime(second, (1_000_001, 1_000_001))
    run(spark, path)
    assert found(tmp_path) == EXPECTED


def test_a_run_that_died_behind_its_commit_does_not_say_that_nothing_was_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, 20)
    path = pipeline(tmp_path, "parquet")
    own = Checkpoint.commit

    def commit(self: Checkpoint, done: Commit) -> None:
        own(self, done)
        if done.step == 1:
            raise RuntimeError("the process dies here")

    monkeypatch.setattr(Checkpoint, "commit", commit)
    with pytest.raises(RunFailed):
        run(spark, path)
    monkeypatch.undo()
    report = run(spark, path)
    assert found(tmp_path) == EXPECTED
    assert (report.read, report.filtered, report.counts["events"]) == (None, None, len(ROWS))
    assert run(spark, path).counts == report.counts


def test_a_checkpoint_that_was_damaged_is_refused(spark: Any, tmp_path: Path) -> None:
    write(tmp_path, 15)
    path = pipeline(tmp_path, "parquet")
    path.write_text(path.read_text().replace('at_end = "release"', 'at_end = "wait"'))
    run(spark, path)
    kept = tmp_path / "kept"
    shutil.copytree(tmp_path / "checkpoint", kept)
    folder = tmp_path / "checkpoint" / "concordant"

    def refused(message: str) -> None:
        with pytest.raises(UsageError, match=message):
            run(spark, path)
        shutil.rmtree(tmp_path / "checkpoint")
        shutil.copytree(kept, tmp_path / "checkpoint")

    (folder / "commits" / "1.json").write_text("{")
    refused("no checkpoint of ours, or a damaged one")
    shutil.rmtree(tmp_path / "checkpoint" / "spark")
    refused("Spark's part of it is missing")
    shutil.rmtree(folder)
    refused("our part of it is missing")
    pq.write_table(pa.Table.from_pylist(ROWS[:1]), tmp_path / "in" / "9.parquet")
    for state in folder.glob("state/*/*.state"):
        state.write_bytes(state.read_bytes()[:-1] + b"x")
    refused("a saved state in the checkpoint is damaged")
    for state in folder.glob("state/*/*.state"):
        state.write_bytes(b"something else")
    refused("bytes that are no saved state")


CSV = """time,source,topic,seq,v,k
0,s,T,0,0,0
1000,s,T,1,7,0
"""


@pytest.mark.parametrize("stream", [False, True])
def test_csv_columns_that_stand_elsewhere_are_told_and_not_taken_for_others(
    spark: Any, tmp_path: Path, stream: bool
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "events.csv").write_text(CSV)
    with pytest.raises(UsageError) as told:
        run(spark, pipeline(tmp_path, "csv", stream=stream))
    assert told.value.place == str(tmp_path / "in" / "events.csv")
    assert told.value.message == "the header names a column 'time' where 'topic' is expected"
    assert "(time, source, topic, seq, v, k)" in told.value.hint
    (tmp_path / "in" / "events.csv").write_text("topic,source,seq,time,k,v\n" * 2)
    (tmp_path / "in" / "less.csv").write_text("topic,source,seq,time,k\n")
    (tmp_path / "in" / "events.csv").unlink()
    with pytest.raises(UsageError, match="the header has 5 columns, and 6 are expected"):
        run(spark, pipeline(tmp_path, "csv", stream=stream))


def test_csv_cells_are_cut_as_the_local_engine_cuts_them(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.csv").write_text(
        'T;"s ""quoted"" \\";0;0;0;0\nT;"s ""quoted"" \\";1;1000;0;7\n'
        'T;"two\nlines; and more";2;2000;0;9\n'
    )
    path = pipeline(tmp_path, "csv", stream=False)
    options = 'kind = "csv"\nseparator = ";"\nheader = false\nmultiline = true'
    path.write_text(path.read_text().replace('kind = "csv"', options))
    run(spark, path)
    first = 's "quoted" \\'
    assert found(tmp_path) == [[f"{first}:0", f"{first}:1"]]


@pytest.mark.parametrize("stream", [False, True])
def test_a_damaged_parquet_file_ends_the_run_with_its_name_and_no_stack(
    spark: Any, tmp_path: Path, stream: bool
) -> None:
    write(tmp_path, 10)
    damaged = tmp_path / "in" / "1.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-4] + b"PARX")
    with pytest.raises((RunFailed, UsageError)) as told:
        run(spark, pipeline(tmp_path, "parquet", stream=stream))
    assert isinstance(told.value, RunFailed | UsageError)
    assert str(damaged) in told.value.message and "\n" not in told.value.message
    assert told.value.hint


@pytest.mark.parametrize("stream", [False, True])
def test_an_output_that_cannot_be_written_is_told_with_its_path(
    spark: Any, tmp_path: Path, stream: bool
) -> None:
    write(tmp_path)
    (tmp_path / "out").write_text("a file where the folder should be")
    path = pipeline(tmp_path, "parquet", stream=stream)
    path.write_text(path.read_text().replace('kind = "jsonl"', 'kind = "parquet"'))
    with pytest.raises(UsageError, match="the folder of results cannot be made") as told:
        run(spark, path)
    assert told.value.place == str(tmp_path / "out")


def test_results_of_another_checkpoint_are_neither_mixed_nor_lost(
    spark: Any, tmp_path: Path
) -> None:
    write(tmp_path, 10)
    path = pipeline(tmp_path, "parquet")
    run(spark, path)
    results = {p.name: p.read_text() for p in (tmp_path / "out").glob("*.jsonl")}
    assert found(tmp_path) == EXPECTED and len(results) > 1
    shutil.rmtree(tmp_path / "checkpoint")
    for two in (tmp_path / "in").glob("*"):
        two.unlink()
    write(tmp_path)  # the same in one file: one micro-batch, whose results would be the first
    with pytest.raises(UsageError, match="holds results of pipeline 'pipe', checkpoint"):
        run(spark, path)
    assert {p.name: p.read_text() for p in (tmp_path / "out").glob("*.jsonl")} == results
    text = path.read_text().replace('path = "out"', 'path = "out"\noverwrite = true')
    path.write_text(text.replace('path = "aside"', 'path = "aside"\noverwrite = true'))
    run(spark, path)
    run(spark, path)
    assert found(tmp_path) == EXPECTED


def test_a_pipeline_over_tables_replaces_its_own_results(spark: Any, tmp_path: Path) -> None:
    write(tmp_path)
    path = pipeline(tmp_path, "parquet", stream=False)
    run(spark, path)
    run(spark, path)
    assert found(tmp_path) == EXPECTED
    path.write_text(path.read_text().replace('kind = "jsonl"', 'kind = "parquet"'))
    run(spark, path)
    assert not found(tmp_path)  # nothing of the other form is left beside
    rows = spark.read.parquet(str(tmp_path / "out" / "batch=0")).count()
    assert rows == len(EXPECTED)


def test_a_column_of_another_type_in_parquet_is_told_with_file_and_column(
    spark: Any, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    rows = [{**row, "v": str(row["v"])} for row in ROWS]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / "0.parquet")
    with pytest.raises(UsageError) as told:
        run(spark, pipeline(tmp_path, "parquet"))
    assert told.value.place == str(tmp_path / "in" / "0.parquet")
    assert "the column 'v' is stored as" in told.value.message


def test_a_key_with_nine_of_ten_events_gives_the_relations_of_the_kernel(spark: Any) -> None:
    rows = [
        {**row, "k": 0 if i % 10 else i, "seq": i, "time": i} for i, row in enumerate(ROWS * 20)
    ]
    ids = correlate(spark.createDataFrame(rows, FIELDS), QUESTION).select("id").collect()
    assert sorted(one.id for one in ids) == sorted(one.id for one in local(rows, QUESTION))
