"""What a running stream tells: one line of JSON per micro-batch, beside the checkpoint.

A listener of Spark hears that a micro-batch ended and joins what Spark measured with what the
buckets counted. It changes nothing and stops nothing. Listeners hear late: what they have not heard
when a query ends is read from the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from concordant.model.kind import INT_MAX, INT_MIN
from concordant.spark.checkpoint import Checkpoint, Commit

Told = Callable[[dict[str, Any]], None]
"""Hears what a micro-batch did."""


class Monitor(StreamingQueryListener):
    """Writes `progress.jsonl` and hands each line to `told`."""

    def __init__(self, folder: Path, told: Told) -> None:
        self._checkpoint = Checkpoint(folder / "concordant")
        self._path = folder / "progress.jsonl"
        self._told = told
        self._known = {line["batch"] for line in read_progress(folder)}
        self._lock = Lock()  # Spark calls from a thread of its own

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self.hear([event.progress])

    def hear(self, heard: Iterable[Any]) -> None:
        """Tell of micro-batches that were not told of before."""
        with self._lock:
            for progress in heard:
                commit = self._checkpoint.committed(progress.batchId)
                if commit is not None and progress.batchId not in self._known:
                    self._known.add(progress.batchId)
                    self._write(_line(progress, commit))

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("ab") as stream:
            stream.write(msgspec.json.encode(line) + b"\n")
        self._told(line)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass


def _line(progress: Any, commit: Commit) -> dict[str, Any]:
    line = {
        "batch": progress.batchId,
        "time": str(progress.timestamp),
        "rows": progress.numInputRows,
        "rows_per_second": progress.processedRowsPerSecond,
        "seconds": commit.seconds,
        "released_until_us": commit.until_us,
        "marks": commit.marks,
        **commit.counts,
    }
    if commit.marks and commit.until_us is not None and INT_MIN < commit.until_us < INT_MAX:
        line["lag_us"] = max(commit.marks.values()) - commit.until_us
    return line


def read_progress(folder: Path) -> Iterator[dict[str, Any]]:
    """The lines that were told; one that a crash cut off is passed over."""
    path = folder / "progress.jsonl"
    for text in path.read_bytes().splitlines() if path.exists() else []:
        try:
            yield msgspec.json.decode(text, type=dict[str, Any])
        except msgspec.DecodeError:
            continue
