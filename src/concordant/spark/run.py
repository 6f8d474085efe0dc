"""A pipeline from its sources to its sinks, and what came of it.

Knows the order of things: open, check, run, report. It prints nothing; whoever calls it gets the
progress and the report as values. The same call after a crash or an interruption goes on from the
checkpoint.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from pyspark.errors import PySparkException

from concordant.files.part import Names
from concordant.guarantees.answer import guarantees
from concordant.model.kind import format_instant
from concordant.model.subscription import Subscription
from concordant.spark.aside import Stop
from concordant.spark.asked import ask
from concordant.spark.checkpoint import Commit
from concordant.spark.limits import Done, Enough, Limits
from concordant.spark.monitor import Monitor, Told, rows_read
from concordant.spark.outputs import (
    Owner,
    claim,
    leave_only,
    leave_until,
    name_of,
    owner_of_checkpoint,
    owner_of_tables,
)
from concordant.spark.pipeline import (
    Output,
    Pipeline,
    Source,
    Streaming,
    questions_of,
    release_of_stream,
    trigger_of,
)
from concordant.spark.schema import Input, read_schema
from concordant.spark.session import FAILURES, explained
from concordant.spark.sinks import Delivery, Show, counted
from concordant.spark.sources import open_source
from concordant.spark.step import EVENTS_OF, OVER_BUDGET, RELATIONS
from concordant.spark.streaming import Stream, open_stream
from concordant.spark.tasks import watched

_POLL_SECONDS = 0.5

GUARANTEES_MAX = 100
"""Subscriptions whose guarantees a report lists: each takes some milliseconds to work out."""


@dataclass
class Report:
    """What a run did."""

    name: str
    seconds: float = 0.0
    read: int | None = None
    """Rows that the sources gave since the checkpoint began; None where nobody counted all."""
    set_count: int = 1
    """Sets of subscriptions: a row goes to a kernel of each that can use it."""
    counts: dict[str, int] = field(default_factory=dict)
    """Totals since the checkpoint began."""
    before: dict[str, int] = field(default_factory=dict)
    """The same when this run began."""
    read_before: int | None = 0
    subscriptions: list[str] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    """Those that the subscriptions read."""
    batches: int = 0
    """Micro-batches since the checkpoint began."""
    ended: str = ""
    """Which limit ended the run, if one did."""
    promises: list[str] = field(default_factory=list)
    guarantees: dict[str, dict[str, list[str]]] = field(default_factory=dict)
    """By subscription: the properties it keeps and those it loses."""
    outputs: list[str] = field(default_factory=list)

    @property
    def relations(self) -> dict[str, int]:
        """Relations by subscription, since the checkpoint began."""
        return {**dict.fromkeys(self.subscriptions, 0), **_by_name(RELATIONS, self.counts)}

    @property
    def relations_now(self) -> dict[str, int]:
        """Relations by subscription, of this run."""
        before = _by_name(RELATIONS, self.before)
        return {name: number - before.get(name, 0) for name, number in self.relations.items()}

    @property
    def long_searches(self) -> dict[str, int]:
        """Searches over the budget, by subscription."""
        return {name: n for name, n in _by_name(OVER_BUDGET, self.counts).items() if n}

    @property
    def unheard(self) -> list[str]:
        """Topics that are read, and of which no event came that somebody can use."""
        heard = _by_name(EVENTS_OF, self.counts)
        return [one for one in self.topics if not heard.get(one)]

    @property
    def rate(self) -> float:
        """Rows in a second of this run, as far as they are known; else events."""
        if self.read is not None and self.read_before is not None:
            return (self.read - self.read_before) / self.seconds
        return (self.counts.get("events", 0) - self.before.get("events", 0)) / self.seconds

    @property
    def set_aside(self) -> dict[str, int]:
        """Rows that were no events, or came too late, or again."""
        return {what: n for what in ("bad", "late", "repeated") if (n := self.counts.get(what, 0))}

    @property
    def filtered(self) -> int | None:
        """Rows that no subscription can use, stopped before Python; None where it is not known."""
        if self.read is None or self.set_count > 1:
            return None
        used = [self.counts.get(name, 0) for name in ("events", "held")]
        return self.read - sum(used) - sum(self.set_aside.values())


def _by_name(prefix: str, counts: Mapping[str, int]) -> dict[str, int]:
    """Those counts that are one for each name."""
    found = {
        key.removeprefix(prefix): number for key, number in counts.items() if key.startswith(prefix)
    }
    return dict(sorted(found.items()))


def run_pipeline(
    pipeline: Pipeline,
    session: Any,
    *,
    generate: Callable[[Source], str],
    show: Show,
    told: Told,
    stop: Stop | None = None,
) -> Report:
    """Run a pipeline to its end, or until `stop` is asked for."""
    started = monotonic()
    report = Report(pipeline.name)
    report.subscriptions = [one.name for one in questions_of(pipeline)]
    try:
        inputs = [
            _input(session, pipeline, source, number, generate)
            for number, source in enumerate(pipeline.source, 1)
        ]
        if pipeline.stream is None:
            with watched(session, told):
                _run_tables(pipeline, inputs, report, show)
        else:
            _run_stream(pipeline, inputs, report, show, told, stop or Stop())
    except FAILURES as error:
        raise explained(error) from None
    report.seconds = monotonic() - started
    report.guarantees = _guarantees(questions_of(pipeline))
    report.outputs = [one.path for one in pipeline.outputs]
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
        unique=pipeline.bad.unique,
    )
    _claim(pipeline, owner_of_tables(pipeline.name, pipeline.folder))
    answers = asked.answers().persist()
    try:
        # It reads them all: what fails does so before a sink has touched the last run's results.
        report.counts = counted(answers)
        Delivery(pipeline, asked.job, show, True)(answers, 0)
        for one in _here(pipeline):
            leave_only([name_of(one.kind, 0)], Path(one.path))
    finally:
        answers.unpersist()
    report.batches = 1
    report.set_count = len(asked.job.sets)
    report.topics = [one.name for one in asked.job.topics]
    if all(source.kind != "kafka" for source in pipeline.source):
        report.read = sum(one.frame.count() for one in inputs)
    report.promises = [
        "one order: events by (time, source, seq), whatever the order of rows and files",
        "the relations of the kernel, each once",
    ]


def _run_stream(
    pipeline: Pipeline,
    inputs: list[Input],
    report: Report,
    show: Show,
    told: Told,
    stop: Stop,
) -> None:
    settings = pipeline.stream
    assert settings is not None
    release = release_of_stream(settings)
    folder = Path(pipeline.at(settings.checkpoint))

    refused: list[str] = []

    def deliver(answers: Any, number: int) -> None:
        is_end = stream.checkpoint.begun_end() == number  # belongs to what was read
        if not is_end and (limit := reached()):
            refused.append(limit)
            raise Enough
        delivery(answers, number)

    def reached() -> str:
        return limits.reached(done(), monotonic())

    def done() -> Done:
        last = stream.checkpoint.last()
        return Done.of(last.batch, last.counts) if last else Done()

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
        unique=pipeline.bad.unique,
        progress=settings.progress,
    )
    before = stream.checkpoint.last()
    _claim(pipeline, owner_of_checkpoint(pipeline.name, folder))
    for one in _here(pipeline):
        leave_until(before.step if before is not None else -1, Path(one.path))
    delivery = Delivery(pipeline, stream.asked.job, show, release.mode != "log")
    session = inputs[0].frame.sparkSession
    monitor = Monitor(folder, told)
    session.streams.addListener(monitor)
    report.before = dict(before.counts) if before else {}
    report.read_before = rows_read(folder, before.step) if before is not None else 0
    limits = Limits(settings, done(), monotonic())
    try:
        _await(stream, settings, reached, refused, monitor, stop)
    finally:
        with contextlib.suppress(PySparkException):
            session.streams.removeListener(monitor)
    report.ended = refused[0] if refused else reached()
    if not report.ended and settings.at_end == "release" and settings.trigger == "available-now":
        stream.finish()
    monitor.hear_ends()
    last = stream.checkpoint.last()
    report.batches = last.batch + 1 if last else 0
    report.set_count = len(stream.asked.job.sets)
    report.topics = [one.name for one in stream.asked.job.topics]
    report.read = rows_read(folder, last.step) if last is not None else 0
    report.counts = dict(last.counts) if last else {}
    report.promises = [*_promises(str(release)), *_released(last)]


def _claim(pipeline: Pipeline, owner: Owner) -> None:
    claim({Path(one.path): one.overwrite for one in _here(pipeline)}, owner)


def _here(pipeline: Pipeline) -> list[Output]:
    """The folders of results that this process sees."""
    return [one for one in pipeline.outputs if one.is_here]


def _await(
    stream: Stream,
    settings: Streaming,
    reached: Callable[[], str],
    refused: Sequence[str],
    monitor: Monitor,
    stop: Stop,
) -> None:
    """Wait until the stream has read everything, a limit is reached or refused a micro-batch."""
    query = stream.start(trigger_of(settings))
    monitor.hear_ends()  # one that a killed run had begun
    try:
        while not query.awaitTermination(_POLL_SECONDS):
            stop.check()
            # One that runs is done, and ends it itself.
            if not query.status["isTriggerActive"] and reached():
                break
    except BaseException as error:
        with contextlib.suppress(Exception):  # what ended it is told, not what came of that
            _stop(query, monitor)
        if not refused or not isinstance(error, PySparkException):
            raise
    else:
        _stop(query, monitor)


def _stop(query: Any, monitor: Monitor) -> None:
    if query.isActive:
        query.stop()
    monitor.hear(query.recentProgress)


def _guarantees(subscriptions: Sequence[Subscription]) -> dict[str, dict[str, list[str]]]:
    """What each subscription keeps and loses; whether a lost one has a case is not searched."""
    if len(subscriptions) > GUARANTEES_MAX:
        return {}
    return {
        name: {
            "kept": [one.name for one in answers if one.kept],
            "lost": [one.name for one in answers if not one.kept],
        }
        for name, answers in guarantees(subscriptions, scene_count=0).items()
    }


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


def _released(last: Commit | None) -> list[str]:
    if last is None or last.is_end or last.until_us is None or abs(last.until_us) >= 2**62:
        return []
    until = format_instant(last.until_us)
    return [f"events up to {until} are released; later ones wait in the state"]
