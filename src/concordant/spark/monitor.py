"""What a running stream tells: one line of JSON per step, beside the checkpoint.

A listener of Spark hears that a micro-batch ended and joins what Spark measured with what the
buckets counted. It changes nothing and stops nothing. Listeners hear late: what they have not heard
when a query ends is read from the query. Of the end of an input Spark knows nothing. Steps are told
in their order, none twice; the last line is all that is needed to go on, so that who has no use for
older ones may remove them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from concordant.model.kind import INT_MAX, INT_MIN
from concordant.spark.checkpoint import Checkpoint, Commit

PROGRESS = "progress.jsonl"

_RAN = "addBatch"
"""What Spark timed if a micro-batch ran."""

_PIECE = 1 << 16
"""Bytes of its end that are looked at, until a whole line is found."""

Told = Callable[[dict[str, Any]], None]
"""Hears what a step did."""


class Monitor(StreamingQueryListener):
    """Writes `progress.jsonl` and hands each line to `told`."""

    def __init__(self, folder: Path, told: Told) -> None:
        self._checkpoint = Checkpoint(folder / "concordant")
        self._path = folder / PROGRESS
        self._told = told
        last = self._checkpoint.last()
        if last is None:
            self._path.unlink(missing_ok=True)  # of a checkpoint that was here before
        self._newest, end = _newest(self._path)
        if self._path.exists():
            os.truncate(self._path, end)
        self._done = last.batch if last is not None else -1
        self._lock = Lock()  # Spark calls from a thread of its own

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.hear([event.progress])

    def hear(self, heard: Iterable[Any]) -> None:
        """Tell of micro-batches that were not told of before."""
        with self._lock:
            for progress in heard:
                if _RAN not in progress.durationMs:
                    continue  # Spark was idle, and says so under the number of the next one
                commit = self._checkpoint.of_batch(progress.batchId)
                if commit is not None and str(progress.id) == commit.query:
                    measured = _measured(progress)
                    if progress.batchId <= self._done:
                        # Spark had not heard that it was done, and passed it over unread.
                        measured["rows"] = None
                    self._tell(commit, measured)

    def hear_ends(self) -> None:
        """Tell of ends that were not told of before."""
        with self._lock:
            for commit in self._checkpoint.ends():
                self._tell(commit, _AT_END)

    def _tell(self, commit: Commit, measured: dict[str, Any]) -> None:
        before = self._newest
        if commit.step <= before.step:
            return
        read, rows = before.read, measured["rows"]
        known = read is not None and rows is not None and commit.step == before.step + 1
        self._newest = _Newest(commit.step, read + rows if known else None)
        line = _line(commit, {**measured, "read": self._newest.read})
        with self._path.open("ab") as stream:
            stream.write(msgspec.json.encode(line) + b"\n")
        self._told(line)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


_AT_END: dict[str, Any] = {"batch": None, "time": None, "rows": 0, "rows_per_second": 0.0}
"""An end of the input is no micro-batch, and brings no rows."""


def _measured(progress: Any) -> dict[str, Any]:
    return {
        "batch": progress.batchId,
        "time": str(progress.timestamp),
        "rows": progress.numInputRows,
        "rows_per_second": progress.processedRowsPerSecond,
    }


def _line(commit: Commit, measured: dict[str, Any]) -> dict[str, Any]:
    line = {
        "step": commit.step,
        **measured,
        "seconds": commit.seconds,
        "released_until_us": commit.until_us,
        "marks": commit.marks,
        **commit.counts,
    }
    if commit.marks and commit.until_us is not None and INT_MIN < commit.until_us < INT_MAX:
        line["lag_us"] = max(0, max(commit.marks.values()) - commit.until_us)
    return line


class _Newest(msgspec.Struct):
    """What the last line says that the next one needs."""

    step: int
    read: int | None = None


def rows_read(folder: Path, step: int) -> int | None:
    """Rows that the sources gave until a step, that included, if all were counted."""
    newest, _ = _newest(folder / PROGRESS)
    return newest.read if newest.step == step else None


def _newest(path: Path) -> tuple[_Newest, int]:
    """The last whole line, and where it ends: a crash may have cut off another one."""
    if not path.exists():
        return _Newest(-1, 0), 0
    with path.open("rb") as stream:
        start = end = stream.seek(0, os.SEEK_END)
        text = b""
        while start and text.count(b"\n") < 2:
            start = max(0, start - _PIECE)
            stream.seek(start)
            text = stream.read(end - start)
    whole = text[: text.rfind(b"\n") + 1]
    try:
        return msgspec.json.decode(whole.splitlines()[-1], type=_Newest), start + len(whole)
    except (msgspec.DecodeError, IndexError):
        return _Newest(-1), start + len(whole)
