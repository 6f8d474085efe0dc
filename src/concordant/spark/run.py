"""A pipeline from its sources to its sinks, and what came of it.

Knows the order of things: open, check, run, report. It prints nothing; whoever calls it gets the
progress and the report as values. The same call after a crash or an interruption goes on from the
checkpoint.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from pyspark.errors import PySparkException

from concordant.files.part import Names
from concordant.model.kind import format_instant
from concordant.spark import batch
from concordant.spark.correlate import ask
from concordant.spark.monitor import Monitor
from concordant.spark.pipeline import (
    Pipeline,
    Source,
    questions_of,
    release_of_stream,
    trigger_of,
)
from concordant.spark.schema import Input, read_schema
from concordant.spark.session import explained
from concordant.spark.sinks import Delivery, Show
from concordant.spark.sources import open_source
from concordant.spark.streaming import Stream, open_stream

Told = Callable[[dict[str, Any]], None]
"""Hears what a micro-batch did."""

_POLL_SECONDS = 0.5


@dataclass
class Report:
    """What a run did."""

    name: str
    seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)
    """Totals since the checkpoint began."""
    batches: int = 0
    kept: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)

    @property
    def relations(self) -> dict[str, int]:
        """Relations by subscription."""
        head = "relations of "
        found = {k.removeprefix(head): n for k, n in self.counts.items() if k.startswith(head)}
        return dict(sorted(found.items()))


def run_pipeline(
    pipeline: Pipeline,
    session: Any,
    *,
    generate: Callable[[Source], str],
    show: Show,
    told: Told,
) -> Report:
    """Run a pipeline to its end, or until it is interrupted."""
    started = monotonic()
    report = Report(pipeline.name)
    try:
        inputs = [
            _input(session, pipeline, source, number, generate)
            for number, source in enumerate(pipeline.source, 1)
        ]
        if pipeline.stream is None:
            _run_tables(pipeline, inputs, report, show)
        else:
            _run_stream(pipeline, inputs, report, show, told)
    except PySparkException as error:
        raise explained(error) from None
    report.seconds = monotonic() - started
    report.outputs = [pipeline.at(one.path) for one in pipeline.sink if one.path]
    if pipeline.bad.path:
        report.outputs.append(pipeline.at(pipeline.bad.path))
    return report


def _input(
    session: Any,
    pipeline: Pipeline,
    source: Source,
    number: int,
    generate: Callable[[Source], str],
) -> Input:
    frame = open_source(session, pipeline, source, generate)
    names = Names(
        topic=source.topic_column,
        source=source.source,
        seq=source.seq,
        time=source.time,
        id=source.id,
    )
    return read_schema(
        frame,
        f"source{number}",
        names=names,
        topic=source.topic,
        own_topic=source.topic is not None,
    )


def _run_tables(pipeline: Pipeline, inputs: list[Input], report: Report, show: Show) -> None:
    asked = ask(
        inputs,
        questions_of(pipeline),
        attributes=pipeline.question.attributes,
        bad=pipeline.bad.rows,
    )
    answers = batch.answers_of(asked.rows(), asked.job).persist()
    try:
        report.counts = Delivery(pipeline, asked.job, show, True)(answers, 0)
    finally:
        answers.unpersist()
    report.batches = 1
    report.kept = [
        "one order: events by (time, source, seq), whatever the order of rows and files",
        "the relations of the kernel, each once",
    ]


def _run_stream(
    pipeline: Pipeline, inputs: list[Input], report: Report, show: Show, told: Told
) -> None:
    settings = pipeline.stream
    assert settings is not None
    release = release_of_stream(settings)
    folder = Path(pipeline.at(settings.checkpoint))

    def deliver(answers: Any, number: int) -> dict[str, int]:
        return delivery(answers, number)

    stream = open_stream(
        inputs,
        questions_of(pipeline),
        release=release,
        checkpoint=folder,
        deliver=deliver,
        adapter=settings.adapter,
        bucket_count=settings.buckets,
        attributes=pipeline.question.attributes,
        bad=pipeline.bad.rows,
        progress=settings.progress,
    )
    delivery = Delivery(pipeline, stream.asked.job, show, release.mode != "log")
    session = inputs[0].frame.sparkSession
    monitor = Monitor(folder, told)
    session.streams.addListener(monitor)
    before = stream.checkpoint.last()
    try:
        _await(stream, pipeline, before.batch if before else -1)
    finally:
        with contextlib.suppress(PySparkException):
            session.streams.removeListener(monitor)
    if settings.at_end == "release" and settings.trigger == "available-now":
        stream.finish()
    last = stream.checkpoint.last()
    report.batches = len(list((folder / "concordant" / "commits").glob("*.json")))
    report.counts = dict(last.counts) if last else {}
    until = last.until_us if last else None
    report.kept = [*_promises(str(release)), *_released(until, settings.at_end)]


def _await(stream: Stream, pipeline: Pipeline, before: int) -> None:
    settings = pipeline.stream
    assert settings is not None
    query = stream.start(trigger_of(settings))
    try:
        while not query.awaitTermination(_POLL_SECONDS):
            last = stream.checkpoint.last()
            if settings.batches_max and last and last.batch - before >= settings.batches_max:
                break
    finally:
        if query.isActive:
            query.stop()


def _promises(release: str) -> list[str]:
    if release == "log":
        order = (
            "log: the source's own numbers are the order; a number that comes again is set aside"
        )
    elif release == "frontier":
        order = "frontier: every known source was waited for; the cut into batches does not matter"
    else:
        order = f"{release}: what came later was set aside, and relations may be missing for it"
    return [order, "each relation once: a micro-batch that is run again writes the same again"]


def _released(until_us: int | None, at_end: str) -> list[str]:
    if at_end == "release" or until_us is None or abs(until_us) >= 2**62:
        return []
    return [f"events up to {format_instant(until_us)} are released; later ones wait in the state"]
