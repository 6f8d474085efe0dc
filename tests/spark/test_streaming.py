"""Streams on Spark: any cut into micro-batches gives the kernel's relations, also after a crash."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import StreamingQueryException

from concordant.errors import UsageError
from concordant.local import correlate as local
from concordant.spark import correlate, state_files, streaming
from concordant.spark.checkpoint import Checkpoint, Commit
from concordant.spark.streaming import open_stream
from tests.spark import every_policy

QUESTION = """
pair: T then U and T.v = U.v consume slide partition by k within 1 s
up: T[1].v < T[2].v consume matched partition by k
any: U[1].v > U[2].v match recent consume suffix
"""
RUN = "run"
SCHEMA = "topic string, source string, seq bigint, time bigint, k bigint, v bigint"
ROWS = [
    {
        "topic": "TU"[i * 7 % 11 % 2],
        "source": "ab"[i * 5 % 7 % 2],
        "seq": i,
        "time": 20_000 * i + (90_000 if i * 5 % 7 % 2 else 0),
        "k": i * 3 % 4,
        "v": i * 13 % 9,
    }
    for i in range(120)
]
"""Two sources, one always ahead: a file holds events that belong after some of the next file."""


def expected(question: str = QUESTION, rows: list[dict[str, Any]] = ROWS) -> list[tuple[Any, ...]]:
    return sorted((one.id, one.event_ids) for one in local(rows, question))


def write(folder: Path, *cuts: int, rows: list[dict[str, Any]] = ROWS) -> None:
    """Rows cut into files, which Spark takes in the order of their times."""
    folder.mkdir(exist_ok=True)
    for start, stop in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        number = len(list(folder.iterdir()))
        path = folder / f"{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows[start:stop]), path)
        os.utime(path, (1_000_000 + number, 1_000_000 + number))


class Run:
    """A stream over a folder, whose results replace those of the same step."""

    def __init__(
        self,
        spark: Any,
        folder: Path,
        question: str = QUESTION,
        *,
        schema: str = SCHEMA,
        **options: Any,
    ) -> None:
        self.results: dict[int, list[tuple[Any, ...]]] = {}
        self.counts: dict[str, int] = {}
        self.dies_after = -1
        self.looks_away = False
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        self.stream = open_stream(
            reader.parquet(str(folder / "in")),
            question,
            **{"release": "frontier", "bucket_count": 3, **options},
            checkpoint=folder / "checkpoint",
            deliver=self.deliver,
        )

    def deliver(self, answers: Any, step: int) -> None:
        if self.looks_away:
            return
        rows = answers.select("what", "id", "events.id").collect()
        self.results[step] = [(one[1], tuple(one[2])) for one in rows if one[0] is None]
        for one in rows:
            self.counts[one[0] or "relations"] = self.counts.get(one[0] or "relations", 0) + 1
        if step == self.dies_after:
            self.dies_after = -1
            raise RuntimeError("the process dies here")

    def go(self, *, finish: bool = True) -> list[tuple[Any, ...]]:
        self.stream.start({"availableNow": True}).awaitTermination()
        if finish:
            self.stream.finish()
        return self.found()

    def found(self) -> list[tuple[Any, ...]]:
        return sorted(one for step in self.results.values() for one in step)


def test_any_cut_gives_the_relations_of_the_whole(spark: Any, tmp_path: Path) -> None:
    rows = every_policy.rows_of(3)
    write(tmp_path / "in", 17, 164, rows=rows)
    found = Run(spark, tmp_path, every_policy.QUESTION).go()
    assert found == sorted(every_policy.expected(rows))


def test_a_log_is_released_as_it_comes(spark: Any, tmp_path: Path) -> None:
    rows = [row for row in ROWS if row["source"] == "a"]
    write(tmp_path / "in", 30, rows=rows)
    found = Run(spark, tmp_path, release="log").go(finish=False)
    assert found == expected(rows=rows)
    assert found


@pytest.mark.parametrize("bucket_count", [1, 3])
def test_what_a_log_says_again_does_not_depend_on_the_buckets(
    spark: Any, tmp_path: Path, bucket_count: int
) -> None:
    rows = [row for row in ROWS if row["source"] == "a"]
    early, whole = rows[1:30:3], [*rows[0:30:3], *rows[2:30:3], *rows[30:]]
    write(tmp_path / "in", 20, rows=[*whole[:20], *early, *whole[20:]])
    run = Run(spark, tmp_path, release="log", bucket_count=bucket_count, bad="skip")
    found = run.go(finish=False)
    assert run.counts["repeated"] == len(early)
    assert found == expected(rows=sorted(whole, key=lambda row: row["seq"]))


def test_a_second_source_of_a_log_is_noticed_in_whichever_bucket(
    spark: Any, tmp_path: Path
) -> None:
    own = [row | {"topic": "T", "k": 1} for row in ROWS if row["source"] == "a"]
    write(tmp_path / "in", 3, rows=[*own[:3], own[3] | {"source": "b", "k": 2}])
    question = "up: T[1].v < T[2].v partition by k"
    run = Run(spark, tmp_path, question, release="log", bucket_count=8)
    with pytest.raises(StreamingQueryException, match="there are 'a' and 'b'"):
        run.go(finish=False)


def test_what_nobody_reads_has_happened_all_the_same(spark: Any, tmp_path: Path) -> None:
    rows = [row for row in ROWS if row["source"] == "a"]
    write(tmp_path / "in", 30, rows=rows)
    run = Run(spark, tmp_path, release="log")
    run.looks_away = True
    run.go(finish=False)
    last = run.stream.checkpoint.last()
    assert last is not None
    wanted = [one.topics for one in run.stream.asked.job.sets]
    assert last.counts["events"] == sum(row["topic"] in topics for topics in wanted for row in rows)


def crashed_and_resumed(spark: Any, folder: Path, **options: Any) -> list[tuple[Any, ...]]:
    """Results written, nothing committed, run again: the worst moment."""
    write(folder / "in", 50)
    run = Run(spark, folder, **options)
    run.dies_after = 1
    with pytest.raises(StreamingQueryException):
        run.go()
    return run.go()


def test_a_run_that_dies_after_its_sink_wrote_goes_on_as_if_nothing_had_been(
    spark: Any, tmp_path: Path
) -> None:
    assert crashed_and_resumed(spark, tmp_path) == expected()


def test_the_comparison_finds_a_state_that_is_read_after_it_was_written(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = state_files._task

    def task(*arguments: Any) -> Any:
        inner = own(*arguments)

        def run(batches: Any) -> Any:  # in the worker
            right = Checkpoint.read_state

            def wrong(self: Checkpoint, bucket: int, before: Commit | None) -> bytes | None:
                step = before.step + 1 if before else 0
                newest = Commit(step, run=RUN)
                written = list((self.folder / "state" / str(bucket)).glob(f"{step}-*"))
                return right(self, bucket, newest if written else before)

            Checkpoint.read_state = wrong
            try:
                yield from inner(batches)
            finally:
                Checkpoint.read_state = right

        return run

    monkeypatch.setattr(state_files, "_task", task)
    monkeypatch.setattr(streaming.secrets, "token_hex", lambda count: RUN)
    assert crashed_and_resumed(spark, tmp_path, bad="skip") != expected()


def test_what_comes_after_the_watermark_is_set_aside_and_told(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    late = [ROWS[-1], ROWS[0], ROWS[1]]
    for number, rows in enumerate([ROWS[5:], late[:1], late[1:]]):
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in" / f"{number}.parquet")
    run = Run(spark, tmp_path, release="watermark 10 ms", bad="skip")
    run.go(finish=False)
    assert run.counts["late"] >= 2


def test_subscriptions_come_and_go_between_runs(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", 60)
    first = Run(spark, tmp_path, "up: T[1].v < T[2].v consume matched partition by k\nold: U")
    first.go(finish=False)
    before = first.found()
    write(tmp_path / "in", 119)  # comes again: every event is late now
    again = Run(
        spark,
        tmp_path,
        "up: T[1].v < T[2].v consume matched partition by k\nnew: T then U",
        bad="skip",
    )
    found = again.go()
    names = {name.split("/")[0] for name, _ in found}
    assert "old" not in names
    both = sorted(one for one in (*before, *found) if one[0].startswith("up/"))
    assert both == expected("up: T[1].v < T[2].v consume matched partition by k")


def test_columns_go_with_the_subscriptions_that_read_them(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", 60)
    (tmp_path / "in" / "1.parquet").rename(tmp_path / "later")
    kept = "kept: T then U"
    first = Run(
        spark, tmp_path, f"{kept}\nbeside: T then U and T.k = U.k\napart: U.k > 1 partition by v"
    )
    first.go(finish=False)
    before = [one for one in first.found() if one[0].startswith("kept")]
    (tmp_path / "later").rename(tmp_path / "in" / "1.parquet")
    schema = SCHEMA.replace(", k bigint", "")
    again = Run(spark, tmp_path, kept, schema=schema)
    assert sorted([*before, *again.go()]) == expected(kept)


def test_waiting_rows_are_what_they_were_when_subscriptions_join_and_are_moved(
    spark: Any, tmp_path: Path
) -> None:
    lines = QUESTION.split("\n")[1:-1]
    write(tmp_path / "in", 60)
    (tmp_path / "in" / "1.parquet").rename(tmp_path / "later")
    first = Run(spark, tmp_path)
    first.go(finish=False)
    last = first.stream.checkpoint.last()
    assert last is not None and last.counts["held"] > 0
    (tmp_path / "later").rename(tmp_path / "in" / "1.parquet")
    other = Run(spark, tmp_path, "\n".join([lines[2], "new: A then B", lines[1], lines[0]]))
    assert other.stream.saved.generations == [["pair", "up", "any"], ["new"]]
    found = other.go()
    assert sorted([*first.found(), *found]) == expected()


def test_a_stream_goes_on_after_the_end_of_its_input(spark: Any, tmp_path: Path) -> None:
    rows = sorted(ROWS, key=lambda row: row["time"])
    write(tmp_path / "in", rows=rows[:70])
    run = Run(spark, tmp_path)
    assert run.go() == expected(rows=rows[:70])
    again = Run(spark, tmp_path)
    again.go()
    assert again.results == {}  # nothing came, and nothing waits
    write(tmp_path / "in", 30, rows=rows[70:])
    third = Run(spark, tmp_path)
    assert sorted([*run.found(), *third.go()]) == expected(rows=rows)
    assert list(third.results) == [2, 3, 4]
    last = third.stream.checkpoint.last()
    assert last is not None
    assert (last.step, last.batch, last.is_end) == (4, 2, True)
    assert "late" not in third.counts


def test_what_is_no_newer_than_an_end_is_late_after_it_and_told(spark: Any, tmp_path: Path) -> None:
    rows = sorted(ROWS, key=lambda row: row["time"])
    write(tmp_path / "in", rows=rows[:70])
    Run(spark, tmp_path).go()
    write(tmp_path / "in", rows=rows[69:])
    run = Run(spark, tmp_path)
    run.go()
    assert run.counts["late"] == sum(
        rows[69]["topic"] in one.topics for one in run.stream.asked.job.sets
    )


def test_an_end_that_was_killed_is_completed_before_anything_new_is_read(
    spark: Any, tmp_path: Path
) -> None:
    rows = sorted(ROWS, key=lambda row: row["time"])
    write(tmp_path / "in", rows=rows[:70])
    run = Run(spark, tmp_path)
    run.dies_after = 1
    with pytest.raises(RuntimeError):
        run.go()
    half = run.results.pop(1)
    write(tmp_path / "in", rows=rows[70:])
    again = Run(spark, tmp_path)
    found = again.go(finish=False)
    assert again.results[1] == half != []
    assert run.found() != sorted([*run.found(), *again.results[1]]) == expected(rows=rows[:70])
    assert again.stream.checkpoint.begun_end() is None
    assert sorted([*run.found(), *found, *released(again)]) == expected(rows=rows)


def released(run: Run) -> list[tuple[Any, ...]]:
    """What the end of the input releases."""
    run.results = {}
    run.stream.finish()
    return run.found()


def test_a_start_that_fails_leaves_the_question_as_it_was(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", 50)
    (tmp_path / "in" / "1.parquet").rename(tmp_path / "later")
    first = Run(spark, tmp_path)
    first.go(finish=False)
    job = (first.stream.checkpoint.folder / "job.json").read_bytes()
    (tmp_path / "later").rename(tmp_path / "in" / "1.parquet")
    other = Run(spark, tmp_path, QUESTION.replace("any:", "every:"))
    other.dies_after = 1
    with pytest.raises(StreamingQueryException):
        other.go()
    assert (first.stream.checkpoint.folder / "job.json").read_bytes() == job
    again = Run(spark, tmp_path)
    assert sorted([*first.found(), *again.go()]) == expected()


def test_an_attribute_of_another_kind_is_refused_while_rows_wait(
    spark: Any, tmp_path: Path
) -> None:
    write(tmp_path / "in", 50)
    Run(spark, tmp_path).go(finish=False)
    reader = spark.readStream.schema(SCHEMA.replace("v bigint", "v double"))
    with pytest.raises(UsageError, match=r"'v' of topic 'T' was int .* now it is float"):
        open_stream(
            reader.parquet(str(tmp_path / "in")),
            QUESTION,
            release="frontier",
            checkpoint=tmp_path / "checkpoint",
            deliver=lambda answers, step: None,
        )


def test_a_state_that_vanishes_while_a_stream_runs_is_told_and_nothing_goes_on_without_it(
    spark: Any, tmp_path: Path
) -> None:
    write(tmp_path / "in", 50)
    run = Run(spark, tmp_path)
    own = run.deliver

    def deliver(answers: Any, step: int) -> None:
        if step == 1:
            (state,) = (tmp_path / "checkpoint/concordant/state/0").iterdir()
            state.unlink()
        own(answers, step)

    run.stream = dataclasses.replace(run.stream, deliver=deliver)
    with pytest.raises(StreamingQueryException, match="bucket 0 after step 0 is missing"):
        run.go()
    assert list(run.results) == [0]


def from_own_store(spark: Any, folder: Path, question: str, bucket_count: int) -> list[Any]:
    """What a stream gives now, with its state in Spark's own store."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    events = reader.parquet(str(folder / "in"))
    answers = correlate(events, question, release="frontier", bucket_count=bucket_count)
    rows: list[Any] = []
    query = (
        answers.writeStream.foreachBatch(lambda found, _: rows.extend(found.collect()))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return rows


def test_spark_s_own_store_gives_the_same_stream(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", 40)
    rows = from_own_store(spark, tmp_path, QUESTION, 2)
    frontier = min(max(r["time"] for r in ROWS if r["source"] == source) for source in "ab")
    released = [row for row in ROWS if row["time"] < frontier]
    found = sorted((one["id"], tuple(event["id"] for event in one["events"])) for one in rows)
    assert found == expected(rows=released)


@pytest.mark.parametrize(
    ("question", "bucket_count", "message"),
    [
        (QUESTION, 3, "begun with 2 buckets"),
        (f"{QUESTION}new: U", 2, "begun with another question"),
    ],
)
def test_spark_s_own_store_is_refused_to_another_question_or_other_buckets(
    spark: Any, tmp_path: Path, question: str, bucket_count: int, message: str
) -> None:
    write(tmp_path / "in", 40)
    (tmp_path / "in" / "1.parquet").rename(tmp_path / "later")
    from_own_store(spark, tmp_path, QUESTION, 2)
    (tmp_path / "later").rename(tmp_path / "in" / "1.parquet")
    with pytest.raises(StreamingQueryException, match=message):
        from_own_store(spark, tmp_path, question, bucket_count)
