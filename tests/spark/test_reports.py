"""What a run tells: its own share, what was never heard of, and how far it is."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from concordant.cli.run import _warnings
from concordant.errors import UsageError
from concordant.local import correlate as local
from concordant.spark.checkpoint import Checkpoint
from concordant.spark.pipeline import read_pipeline
from concordant.spark.run import Report, run_pipeline

QUESTION = "up: T[1].v < T[2].v consume matched partition by k\\nnone: U then V"
ROWS = [
    {"topic": "T", "source": "s", "seq": i, "time": i * 1_000, "k": i % 3, "v": i * 7 % 11}
    for i in range(60)
]
EXPECTED = [list(one.event_ids) for one in local(ROWS, QUESTION.split("\\n")[0])]


def pipeline(folder: Path, stream: str = "") -> Path:
    (folder / "in").mkdir()
    for number in range(4):
        rows = pa.Table.from_pylist(ROWS[number * 15 : number * 15 + 15])
        file = folder / "in" / f"{number}.parquet"
        pq.write_table(rows, file)
        os.utime(file, (1_000_000 + number, 1_000_000 + number))  # Spark takes the oldest first
    path = folder / "pipe.toml"
    path.write_text(
        f'[question]\nsubscriptions = "{QUESTION}"\n[[source]]\nkind = "parquet"\npath = "in"\n'
        f'[[sink]]\nkind = "jsonl"\npath = "out"\n{stream}'
    )
    return path


def run(spark: Any, path: Path, told: list[dict[str, Any]] | None = None) -> Report:
    return run_pipeline(
        read_pipeline(path),
        spark,
        generate=lambda source: source.path,
        show=lambda rows: None,
        told=lambda line: None if told is None else told.append(line),
    )


def found(folder: Path) -> list[list[str]]:
    texts = [path.read_text() for path in sorted((folder / "out").glob("[0-9]*.jsonl"))]
    return [json.loads(line)["events"] for text in texts for line in text.splitlines()]


STREAM = """
[stream]
checkpoint = "checkpoint"
release = "frontier"
at_end = "release"
buckets = 1
"""


@pytest.mark.parametrize("limit", ["batches_max = 1", "relations_max = 1", 'time_max = "1 us"'])
def test_a_limit_ends_a_run_between_micro_batches_and_the_next_goes_on(
    spark: Any, tmp_path: Path, limit: str
) -> None:
    path = pipeline(tmp_path, STREAM + limit)
    first = run(spark, path)
    assert first.ended == limit.replace('"', "'")
    if "time" in limit:
        assert first.batches == 0 and not found(tmp_path)
    else:
        assert first.batches < 4
        second = run(spark, path)
        assert second.before == first.counts and second.batches > first.batches
        assert sum(second.relations_now.values()) == (
            second.relations["up"] - first.relations["up"]
        )
    path.write_text(path.read_text().replace(limit, ""))
    last = run(spark, path)
    assert not last.ended
    assert found(tmp_path) == EXPECTED
    assert last.relations == {"up": len(EXPECTED), "none": 0}


def test_a_limit_that_the_last_micro_batch_reaches_ends_the_run_before_the_end_of_the_input(
    spark: Any, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, STREAM + "batches_max = 4")
    first = run(spark, path)
    assert first.ended == "batches_max = 4" and first.batches == 4
    second = run(spark, path)
    assert not second.ended
    assert found(tmp_path) == EXPECTED


def test_an_end_that_was_begun_is_completed_whatever_the_limit(spark: Any, tmp_path: Path) -> None:
    path = pipeline(tmp_path, STREAM + "batches_max = 4")
    run(spark, path)
    checkpoint = Checkpoint(tmp_path / "checkpoint" / "concordant")
    checkpoint.begin_end(4)  # a run was killed here
    path.write_text(path.read_text().replace("batches_max = 4", 'time_max = "1 us"'))
    run(spark, path)
    last = checkpoint.last()
    assert last is not None and last.is_end
    assert found(tmp_path) == EXPECTED


def test_a_failure_that_says_enough_is_no_limit(spark: Any, tmp_path: Path) -> None:
    path = pipeline(tmp_path, STREAM)
    row = {**ROWS[-1], "source": "NotEnoughReplicas", "time": None}
    pq.write_table(pa.Table.from_pylist([ROWS[-1], row]), tmp_path / "in" / "9.parquet")
    with pytest.raises(UsageError, match="event NotEnoughReplicas"):
        run(spark, path)
    last = Checkpoint(tmp_path / "checkpoint" / "concordant").last()
    assert last is not None and not last.is_end


def test_results_of_steps_that_a_checkpoint_lost_do_not_stay(spark: Any, tmp_path: Path) -> None:
    path = pipeline(tmp_path, STREAM)
    run(spark, path)
    for half in ("concordant", "spark"):
        shutil.rmtree(tmp_path / "checkpoint" / half)
    shutil.rmtree(tmp_path / "in")
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "in" / "0.parquet")
    run(spark, path)
    assert found(tmp_path) == EXPECTED


def test_parquet_of_a_stream_has_one_layout_whatever_subscriptions_come(
    spark: Any, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, STREAM)
    text = path.read_text().replace('kind = "jsonl"', 'kind = "parquet"')
    path.write_text(text.replace("\\nnone: U then V", ""))
    later = (tmp_path / "in" / "3.parquet").rename(tmp_path / "later")
    run(spark, path)
    later.rename(tmp_path / "in" / "3.parquet")
    path.write_text(text)
    run(spark, path)
    folders = sorted((tmp_path / "out").glob("batch=*"))
    layouts = {tuple(spark.read.parquet(str(one)).columns) for one in folders}
    assert len(layouts) == 1 and "events" in layouts.pop()


@pytest.mark.parametrize("adaptive", ["true", "false"])
def test_a_run_over_tables_that_fails_leaves_the_last_results(
    spark: Any, tmp_path: Path, adaptive: str
) -> None:
    path = pipeline(tmp_path)
    path.write_text(path.read_text().replace('kind = "jsonl"', 'kind = "parquet"'))
    run(spark, path)
    count = spark.read.parquet(str(tmp_path / "out")).count()
    assert count == len(EXPECTED)
    rows = [ROWS[0], {**ROWS[-1], "seq": 900, "time": None}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / "9.parquet")
    spark.conf.set("spark.sql.adaptive.enabled", adaptive)
    try:
        with pytest.raises(UsageError, match="cannot be an event"):
            run(spark, path)
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert spark.read.parquet(str(tmp_path / "out")).count() == count


def test_a_frontier_that_would_wait_for_a_file_for_ever_is_refused(
    spark: Any, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, STREAM.replace('at_end = "release"', ""))
    for number in range(4):
        file = tmp_path / "in" / f"{number}.parquet"
        pq.write_table(pq.read_table(file).drop_columns(["source", "seq"]), file)
    with pytest.raises(UsageError, match="each of these files is a source of its own") as told:
        run(spark, path)
    assert told.value.place == str(tmp_path / "in")
    text = path.read_text()
    for said in ('idle = "1 ms"', 'at_end = "release"'):
        path.write_text(f"{text}{said}\nbatches_max = 1\n")
        assert run(spark, path).ended == "batches_max = 1"


def test_topics_that_nobody_heard_of_and_late_events_are_warned_of(
    spark: Any, tmp_path: Path
) -> None:
    path = pipeline(tmp_path, STREAM.replace("frontier", "watermark 1 ms"))
    late = {**ROWS[0], "source": "z", "seq": 900}
    report = run(spark, path)
    assert report.unheard == ["U", "V"]
    pq.write_table(pa.Table.from_pylist([late]), tmp_path / "in" / "9.parquet")
    report = run(spark, path)
    told = _warnings(report)
    assert "of 'U', 'V': is the name right?" in told[0]
    assert told[1].startswith("1 events came too late")
    assert (report.read, report.read_before) == (61, 60)
    assert report.rate < 61 / report.seconds


def test_a_job_over_tables_says_how_many_tasks_are_done(spark: Any, tmp_path: Path) -> None:
    path = pipeline(tmp_path)
    shutil.rmtree(tmp_path / "in")
    rows = [{**row, "seq": i, "time": i} for i, row in enumerate(ROWS * 5_000)]
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / "0.parquet")
    told: list[dict[str, Any]] = []
    report = run(spark, path, told)
    assert report.read == len(rows)
    assert told and all(0 <= one["tasks_done"] <= one["tasks"] for one in told)


def test_relations_of_far_times_are_written_and_shown(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    nanoseconds = 1_700_000_000_000_000_000
    rows = [
        {"topic": "T", "source": "s", "seq": i, "time": nanoseconds + i, "v": i} for i in range(2)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / "0.parquet")
    path = tmp_path / "pipe.toml"
    path.write_text(
        '[question]\nsubscriptions = "T[1].v < T[2].v"\n'
        '[[source]]\nkind = "parquet"\npath = "in"\n'
        '[[sink]]\nkind = "jsonl"\npath = "out"\n[[sink]]\nkind = "table"\n'
    )
    shown: list[dict[str, Any]] = []
    run_pipeline(
        read_pipeline(path),
        spark,
        generate=lambda source: source.path,
        show=shown.extend,
        told=lambda line: None,
    )
    assert found(tmp_path) == [["s:0", "s:1"]]
    assert [one["events"] for one in shown] == [["s:0", "s:1"]]
    assert "55840" in shown[0]["at"]
