"""Ctrl-C: it ends what runs on Spark without noise, and the next run of a stream goes on."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from concordant.local import correlate
from concordant.spark.aside import Stop, aside
from concordant.spark.pipeline import read_pipeline
from concordant.spark.run import run_pipeline
from tests.processes import descendants

QUESTION = "up: T[1].v < T[2].v consume matched partition by k"
ROWS = [
    {"topic": "T", "source": "s", "seq": i, "time": i * 1_000, "k": i % 3, "v": i * 7 % 11}
    for i in range(60)
]
PIPELINE = """
[question]
subscriptions = "{question}"
[[source]]
kind = "parquet"
path = "in"
[stream]
checkpoint = "checkpoint"
release = "frontier"
at_end = "release"
trigger = "{trigger}"
buckets = 1
[[sink]]
kind = "jsonl"
path = "out"
[spark]
master = "local[1]"
[spark.options]
"spark.driver.memory" = "1g"
"spark.driver.extraJavaOptions" = "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.sql.codegen.wholeStage" = "false"
"spark.sql.codegen.factoryMode" = "NO_CODEGEN"
"spark.sql.shuffle.partitions" = "1"
"""


SILENCE_SECONDS_MAX = 300
"""A command that says nothing for so long hangs; the slowest start on a busy machine does not."""


def _foreground() -> None:
    """As a shell starts a command on a terminal: Ctrl-C means it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self._screen, inner = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "concordant.cli.main", *arguments],
            stdin=inner,
            stdout=inner,
            stderr=inner,
            start_new_session=True,
            preexec_fn=_foreground,
            env={**os.environ, "COLUMNS": "100"},
        )
        os.close(inner)
        self.text = ""

    def await_text(self, wanted: str) -> None:
        while wanted not in self.text:
            self._read()

    def press_ctrl_c(self) -> None:
        os.write(self._screen, b"\x03")

    def ended(self) -> int:
        """Read to the end; the exit code."""
        try:
            while True:
                self._read()
        except EOFError:
            return self.process.wait()

    def _read(self) -> None:
        ready, _, _ = select.select([self._screen], [], [], SILENCE_SECONDS_MAX)
        if not ready:
            self.process.kill()
            raise TimeoutError(self.text)
        try:
            piece = os.read(self._screen, 4096)
        except OSError:  # Linux says so when the last who had the terminal is gone
            piece = b""
        if not piece:
            raise EOFError(self.text)
        self.text += piece.decode(errors="replace")


@pytest.mark.parametrize("presses", [1, 2])
def test_ctrl_c_stops_a_stream_and_the_next_run_goes_on(
    spark: Any, tmp_path: Path, presses: int
) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS[:40]), tmp_path / "in" / "0.parquet")
    path = tmp_path / "pipe.toml"
    path.write_text(PIPELINE.format(question=QUESTION, trigger="1 s"))
    terminal = Terminal("run", str(path))
    terminal.await_text("step 0: ")
    jvms = descendants("SparkSubmit", of=terminal.process.pid)
    assert jvms
    assert terminal.process.pid not in map(os.getpgid, jvms)  # nor are its workers
    terminal.press_ctrl_c()
    if presses == 2:
        terminal.await_text("Ctrl-C again ends it at once")
        terminal.press_ctrl_c()
    assert terminal.ended() == 130
    assert "interrupted; the next run goes on from the checkpoint" in terminal.text
    for noise in ("Traceback", "Exception", "WARN", "ERROR", "py4j"):
        assert noise not in terminal.text, terminal.text

    pq.write_table(pa.Table.from_pylist(ROWS[40:]), tmp_path / "in" / "1.parquet")
    path.write_text(PIPELINE.format(question=QUESTION, trigger="available-now"))
    report = run_pipeline(
        read_pipeline(path),
        spark,
        generate=lambda source: source.path,
        show=lambda rows: None,
        told=lambda line: None,
    )
    lines = [p.read_text() for p in sorted((tmp_path / "out").glob("[0-9]*.jsonl"))]
    found = [json.loads(line)["events"] for text in lines for line in text.splitlines()]
    assert found == [list(one.event_ids) for one in correlate(ROWS, QUESTION)]
    assert report.read == report.counts["events"] == len(ROWS)
    assert report.relations == {"up": len(found)}
    assert "No Creation" in report.guarantees["up"]["kept"]
    progress = (tmp_path / "checkpoint" / "progress.jsonl").read_text()
    told = [json.loads(line) for line in progress.splitlines()]
    assert [(one["step"], one["batch"], one["rows"]) for one in told] == [
        (0, 0, 40),
        (1, 1, 20),
        (2, None, 0),
    ]
    assert [one["lag_us"] for one in told] == [0, 0, 0]


def test_ctrl_c_cancels_the_job_that_runs(spark: Any) -> None:
    failed: list[str] = []

    def work(stop: Stop) -> None:
        stop.session = spark
        os.kill(os.getpid(), signal.SIGINT)  # the main thread's to hear, and it waits
        try:
            spark.range(10**15).selectExpr("sum(id % 7)").collect()
        except Exception as error:
            failed.append(str(error))

    with pytest.raises(KeyboardInterrupt):
        aside(work)
    assert len(failed) == 1 and "cancelled" in failed[0]
    assert spark.range(3).count() == 3


def test_work_that_was_interrupted_as_it_began_has_ended_when_ctrl_c_is_raised() -> None:
    for _ in range(20):
        ended: list[bool] = []

        def work(stop: Stop, ended: list[bool] = ended) -> None:
            os.kill(os.getpid(), signal.SIGINT)
            while True:
                try:
                    stop.check()
                except KeyboardInterrupt:
                    ended.append(True)
                    raise

        with pytest.raises(KeyboardInterrupt):
            aside(work)
        assert ended
