"""`concordant run` on a terminal: Ctrl-C ends it without noise, and the next run goes on.

Not among the tests of `make test` until it is steady on a busy machine:
`pytest tests/spark/terminal_check.py`.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from concordant.local import correlate

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
options = {{ "spark.driver.memory" = "1g", "spark.sql.shuffle.partitions" = "1" }}
"""


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
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
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
        try:
            piece = os.read(self._screen, 4096)
        except OSError:  # Linux says so when the last who had the terminal is gone
            piece = b""
        if not piece:
            raise EOFError(self.text)
        self.text += piece.decode(errors="replace")


def test_ctrl_c_stops_a_stream_and_the_next_run_goes_on(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    pq.write_table(pa.Table.from_pylist(ROWS[:40]), tmp_path / "in" / "0.parquet")
    path = tmp_path / "pipe.toml"
    path.write_text(PIPELINE.format(question=QUESTION, trigger="1 s"))
    terminal = Terminal("run", str(path))
    terminal.await_text("batch 0: ")
    terminal.press_ctrl_c()
    assert terminal.ended() == 130
    for noise in ("Traceback", "Exception", "WARN", "ERROR", "py4j"):
        assert noise not in terminal.text, terminal.text

    pq.write_table(pa.Table.from_pylist(ROWS[40:]), tmp_path / "in" / "1.parquet")
    path.write_text(PIPELINE.format(question=QUESTION, trigger="available-now"))
    done = Terminal("run", str(path), "--json")
    assert done.ended() == 0, done.text
    lines = [p.read_text() for p in sorted((tmp_path / "out").glob("[0-9]*.jsonl"))]
    found = [json.loads(line)["events"] for text in lines for line in text.splitlines()]
    assert found == [list(one.event_ids) for one in correlate(ROWS, QUESTION)]
    report = json.loads(done.text[done.text.index("{") :])
    assert report["read"] == len(ROWS)
    assert report["counts"]["events"] == len(ROWS)
    assert report["relations"] == {"up": len(found)}
    assert "No Creation" in report["guarantees"]["up"]["kept"]
    progress = (tmp_path / "checkpoint" / "progress.jsonl").read_text()
    told = [json.loads(line) for line in progress.splitlines()]
    assert [one["rows"] for one in told] == [40, 20]
    assert told[-1]["lag_us"] == 0
