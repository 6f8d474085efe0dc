"""Streams: micro-batches through the same core as tables, with state kept between them.

Two adapters do the same. `files` runs each micro-batch as a table and keeps the state of every
bucket in the checkpoint folder, by the number of the micro-batch. `store` leaves the state to
Spark (`transformWithState`, one blob per bucket). Which one is the default was measured; see
docs/decisions. What a micro-batch does is a step of the checkpoint, and so is the end of the input.
Results reach `deliver` with the number of their step, which is what makes a sink idempotent.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from pyspark.sql import DataFrame

from concordant.errors import UsageError
from concordant.files.subscriptions import read_subscriptions
from concordant.model.kind import Kind
from concordant.model.subscription import Subscription
from concordant.spark import state_files, state_store
from concordant.spark.asked import Asked, Events, ask
from concordant.spark.checkpoint import (
    Checkpoint,
    Commit,
    SavedJob,
    Setting,
    subscriptions_of,
)
from concordant.spark.job import read_by
from concordant.spark.release import END, Release, release_of
from concordant.spark.sinks import counted

BUCKET_COUNT_MIN = 8
BUCKETS_PER_CORE = 4
"""Buckets of a stream whose caller does not say: state is opened and closed for each of them in
every micro-batch, and there are never more tasks than buckets."""

Deliver = Callable[[DataFrame, int], None]
"""What becomes of the answers of a step, by its number. They are computed whenever they are read:
who reads them several times keeps them meanwhile."""


@dataclass(frozen=True)
class Stream:
    """A question over streams, ready to run."""

    asked: Asked
    release: Release
    checkpoint: Checkpoint
    saved: SavedJob
    deliver: Deliver
    run_id: str = field(default_factory=lambda: secrets.token_hex(8))
    """Tells the states of this run from those of others."""

    def start(self, trigger: dict[str, Any]) -> Any:
        """Begin, or go on from the checkpoint; a query of Spark."""
        if self.checkpoint.begun_end() is not None:
            self._end()
        if self.saved.setting.adapter == "store":
            rows = state_store.answers_of(
                self.asked.rows(), self.asked.job, self.release, self.saved.setting.bucket_count
            )
        else:
            rows = self.asked.rows()
        writer = rows.writeStream.foreachBatch(self.run)
        folder = str(self.checkpoint.spark_folder)
        return writer.option("checkpointLocation", folder).trigger(**trigger).start()

    def run(self, rows: DataFrame, batch: int) -> None:
        """One micro-batch: match, write, commit. Run again after a crash, it does the same."""
        before = self.checkpoint.last()
        if before is not None and before.batch >= batch:
            if self.saved.setting.adapter == "store":
                # We were done, and Spark had not heard of it: its stores go their step again.
                rows.write.format("noop").mode("overwrite").save()
            return
        if self.saved.setting.adapter == "files":
            self._step(rows, before, self.release, batch=batch)
            return
        started = monotonic()
        # The sinks read the answers, and then their counts are read.
        rows = rows.persist()
        try:
            commit = Commit(_after(before), batch)
            self.deliver(rows, commit.step)
            self._commit(commit, before, counted(rows), started)
        finally:
            rows.unpersist()

    def finish(self) -> None:
        """The input is complete: release everything that waits.

        The stream may go on later. What comes then and is no newer than what had come is late.
        """
        if self.saved.setting.adapter == "store":
            raise UsageError(
                "state in Spark's own store cannot be released at the end of the input",
                hint="keep the state in files, or end the input with progress marks",
            )
        before = self.checkpoint.last()
        if before is None or not before.is_end:
            self.checkpoint.begin_end(_after(before))
            self._end()

    def _end(self) -> None:
        session = self.asked.inputs[0].frame.sparkSession
        nothing = session.createDataFrame([], self.asked.rows().schema)
        self._step(nothing, self.checkpoint.last(), END, batch=None)

    def _step(
        self, rows: DataFrame, before: Commit | None, release: Release, *, batch: int | None
    ) -> None:
        """One step with state in files; without a micro-batch it is an end."""
        started = monotonic()
        bucket_count, step = self.saved.setting.bucket_count, _after(before)
        answers = state_files.answers_of(
            rows,
            self.asked.job,
            self.checkpoint.folder,
            before=before,
            run=self.run_id,
            release=release,
            bucket_count=bucket_count,
        )
        self.deliver(answers, step)
        told = self.checkpoint.told(step, self.run_id, bucket_count)
        if told is None:  # what nobody has read happens all the same
            answers.write.format("noop").mode("overwrite").save()
            told = self.checkpoint.told(step, self.run_id, bucket_count)
        assert told is not None
        until_us = release.until(told.marks)
        if before is not None and before.until_us is not None:
            until_us = max(until_us, before.until_us)
        reached = before.batch if before is not None else -1
        commit = Commit(
            step,
            reached if batch is None else batch,
            is_end=batch is None,
            run=self.run_id,
            marks=self.release.kept(told.marks),
            until_us=until_us,
        )
        self._commit(commit, before, told.counts, started)

    def _commit(
        self, commit: Commit, before: Commit | None, counts: Mapping[str, int], started: float
    ) -> None:
        totals = Counter(before.counts if before else {})
        totals.update(counts)
        commit.counts = dict(sorted(totals.items()))
        commit.seconds = round(monotonic() - started, 6)
        self.checkpoint.keep(self.saved)
        self.checkpoint.commit(commit)


def _after(before: Commit | None) -> int:
    """The number of the step that follows."""
    return 0 if before is None else before.step + 1


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
    first = ask(events, wanted, **options)
    folder = Checkpoint(Path(checkpoint) / "concordant")
    setting = Setting(str(mode), bucket_count or _bucket_count(first), adapter, first.job.unique_us)
    saved = folder.open(wanted, setting, _kinds(first), bucket_count=bucket_count)
    # In the order in which they came, whatever the order they are given in now: state is by set.
    known = {one.name: one for one in (*subscriptions_of(saved.texts), *wanted)}
    asked = ask(
        events,
        [known[name] for name in saved.texts],
        generations=saved.generations,
        muted=saved.muted,
        gone=_kinds_read(saved, [known[name] for name in saved.muted]),
        **options,
    )
    return Stream(asked, mode, folder, saved, deliver)


def _kinds(asked: Asked) -> dict[str, dict[str, Kind]]:
    """The kinds of the attributes that travel, by topic."""
    return {topic.name: dict(topic.attributes) for topic in asked.job.topics}


def _kinds_read(
    saved: SavedJob, subscriptions: Sequence[Subscription]
) -> dict[str, dict[str, Kind]]:
    """The saved kinds of the attributes that subscriptions read, by topic of the input."""
    return {
        topic: {name: kind for name, kind in saved.kinds[topic].items() if name in names}
        for topic, names in read_by(subscriptions).items()
        if topic in saved.kinds
    }


def _bucket_count(asked: Asked) -> int:
    cores: int = asked.inputs[0].frame.sparkSession.sparkContext.defaultParallelism
    return max(BUCKET_COUNT_MIN, BUCKETS_PER_CORE * cores)
