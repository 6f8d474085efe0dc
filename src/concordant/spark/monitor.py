"""What a running stream tells: one line of JSON per micro-batch, beside the checkpoint.

A listener of Spark hears that a micro-batch ended and joins what Spark measured with what the
buckets counted. It changes nothing and stops nothing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
from pyspark.sql.streaming.listener import StreamingQueryListener

from concordant.spark.checkpoint import Checkpoint


class Monitor(StreamingQueryListener):
    """Writes `progress.jsonl` and hands each line to `told`."""

    def __init__(self, folder: Path, told: Any = None) -> None:
        self._checkpoint = Checkpoint(folder / "concordant")
        self._path = folder / "progress.jsonl"
        self._told = told

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's names
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        commit = self._checkpoint.committed(progress.batchId)
        if commit is None:
            return
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
        with self._path.open("ab") as stream:
            stream.write(msgspec.json.encode(line) + b"\n")
        if self._told is not None:
            self._told(line)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass
