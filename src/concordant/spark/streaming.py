"""Streams: micro-batches through the same core as tables, with state kept between them.

Two adapters do the same. `files` runs each micro-batch as a table and keeps the state of every
bucket in the checkpoint folder, by the number of the micro-batch. `store` leaves the state to
Spark (`transformWithState`, one blob per bucket). Which one is the default was measured; see
docs/decisions. Results reach `deliver` with the number of their micro-batch, which is what makes a
sink idempotent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from pyspark.sql import DataFrame

from concordant.errors import UsageError
from concordant.files.subscriptions import read_subscriptions
from concordant.spark import state_files, state_store
from concordant.spark.checkpoint import (
    FINAL,
    Checkpoint,
    Commit,
    SavedJob,
    Told,
    subscriptions_of,
)
from concordant.spark.correlate import Asked, Events, ask
from concordant.spark.release import EVERYTHING, Release, release_of
from concordant.spark.sinks import counted

BUCKET_COUNT_MIN = 8
BUCKETS_PER_CORE = 4
"""Buckets of a stream whose caller does not say: state is opened and closed for each of them in
every micro-batch, and there are never more tasks than buckets."""

Deliver = Callable[[DataFrame, int], None]
"""What becomes of a micro-batch's answers. They are computed whenever they are read: who reads them
several times keeps them meanwhile."""


@dataclass(frozen=True)
class Stream:
    """A question over streams, ready to run."""

    asked: Asked
    release: Release
    checkpoint: Checkpoint
    saved: SavedJob
    deliver: Deliver

    def start(self, trigger: dict[str, Any]) -> Any:
        """Begin, or go on from the checkpoint; a query of Spark."""
        if self.saved.adapter == "store":
            rows = state_store.answers_of(
                self.asked.rows(), self.asked.job, self.release, self.saved.bucket_count
            )
        else:
            rows = self.asked.rows()
        writer = rows.writeStream.foreachBatch(self.run)
        folder = str(self.checkpoint.spark_folder)
        return writer.option("checkpointLocation", folder).trigger(**trigger).start()

    def run(self, rows: DataFrame, batch: int) -> None:
        """One micro-batch: match, write, commit. Run again after a crash, it does the same."""
        if self.checkpoint.committed(batch) is not None:
            if self.saved.adapter == "store":
                # We were done, and Spark had not heard of it: its stores go their step again.
                rows.write.format("noop").mode("overwrite").save()
            return
        started = monotonic()
        if self.saved.adapter == "files":
            self._release(rows, batch, self.release, started)
            return
        # The sinks read the answers, and then their counts are read.
        rows = rows.persist()
        try:
            self.deliver(rows, batch)
            self._commit(Commit(batch), counted(rows), started)
        finally:
            rows.unpersist()

    def finish(self) -> None:
        """The input is complete: release everything that waits."""
        if self.saved.adapter == "store":
            raise UsageError(
                "state in Spark's own store cannot be released at the end of the input",
                hint="keep the state in files, or end the input with progress marks",
            )
        if self.checkpoint.committed(FINAL) is None:
            session = self.asked.inputs[0].frame.sparkSession
            nothing = session.createDataFrame([], self.asked.rows().schema)
            self._release(nothing, FINAL, EVERYTHING, monotonic())

    def _release(self, rows: DataFrame, batch: int, release: Release, started: float) -> None:
        before = self.checkpoint.last(before=batch) or Commit(-1)
        answers = state_files.answers_of(
            rows,
            self.asked.job,
            self.checkpoint.folder,
            batch=batch,
            release=release,
            marks=before.marks,
            bucket_count=self.saved.bucket_count,
        )
        self.deliver(answers, batch)
        told = self._told(batch)
        if told is None:  # what nobody has read happens all the same
            answers.write.format("noop").mode("overwrite").save()
            told = self._told(batch)
        assert told is not None
        commit = Commit(batch, told.marks, release.until(told.marks))
        self._commit(commit, told.counts, started)

    def _told(self, batch: int) -> Told | None:
        return self.checkpoint.told(batch, self.saved.bucket_count)

    def _commit(self, commit: Commit, counts: Mapping[str, int], started: float) -> None:
        before = self.checkpoint.last(before=commit.batch)
        totals = Counter(before.counts if before else {})
        totals.update(counts)
        commit.counts = dict(sorted(totals.items()))
        commit.seconds = round(monotonic() - started, 6)
        self.checkpoint.commit(commit)


def open_stream(
    events: Events,
    subscriptions: Any,
    *,
    release: str | Release,
    checkpoint: str | Path,
    deliver: Deliver,
    adapter: str = "files",
    bucket_count: int | None = None,
    match: str | None = None,
    consume: str | None = None,
    **options: Any,
) -> Stream:
    """A question over streaming DataFrames, checked against them and against its checkpoint.

    `options` are those of `correlate`, and `progress`: a topic whose events only say how far their
    source has come.
    """
    if adapter not in ("files", "store"):
        raise UsageError(f"adapter {adapter!r} is unknown", hint="'files' or 'store'")
    mode = release_of(release) if isinstance(release, str) else release
    wanted = read_subscriptions(subscriptions, match=match, consume=consume)
    options["time_ordered"] = mode.mode != "log"
    # What the schemas refuse is refused before a folder is made.
    first = ask(events, wanted, **options)
    folder = Checkpoint(Path(checkpoint) / "concordant")
    saved = folder.open(
        wanted,
        release=str(mode),
        bucket_count=bucket_count or _bucket_count(first),
        adapter=adapter,
    )
    earlier = subscriptions_of({name: saved.texts[name] for name in saved.muted})
    asked = ask(
        events,
        [*wanted, *earlier],
        generations=saved.generations,
        muted=saved.muted,
        **options,
    )
    return Stream(asked, mode, folder, saved, deliver)


def _bucket_count(asked: Asked) -> int:
    cores: int = asked.inputs[0].frame.sparkSession.sparkContext.defaultParallelism
    return max(BUCKET_COUNT_MIN, BUCKETS_PER_CORE * cores)
