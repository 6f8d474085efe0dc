"""A pipeline as a file says it: sources, question, release, sinks. Checked before Spark starts.

Knows the shape of the file and which settings go together, and turns every slip into an error that
names file, table and key. It opens no source and writes no sink.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from concordant.errors import UsageError
from concordant.files.subscriptions import read_subscriptions
from concordant.model.subscription import Subscription
from concordant.spark.release import Release, duration_us, release_of


class Source(msgspec.Struct, forbid_unknown_fields=True):
    """Where events come from."""

    kind: Literal["parquet", "jsonl", "csv", "kafka", "generator"]
    path: str = ""
    topic: str | None = None
    """The topic of all its events, where no column says it."""
    fields: str = ""
    """The columns with their types, as Spark writes them: `order_id bigint, at timestamp`."""
    time: str = "time"
    source: str = "source"
    seq: str = "seq"
    id: str = "id"
    topic_column: str = "topic"
    separator: str = ","
    """What stands between the cells of a CSV line: one character."""
    header: bool = True
    """Do CSV files begin with the names of their columns?"""
    multiline: bool = False
    """May quoted cells of CSV files hold line breaks?"""
    files_per_batch: int = 1
    rows_per_batch: int = 1_000_000
    """Messages of Kafka in one micro-batch, so that a long topic does not become one."""
    servers: str = ""
    kafka_topic: str = ""
    events: int = 1_000_000
    seed: int = 1


class Spark(msgspec.Struct, forbid_unknown_fields=True):
    """Where it runs."""

    master: str = "local[*]"
    options: dict[str, str] = {}
    jars: list[str] = []


class Question(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked."""

    subscriptions: str
    match: str | None = None
    consume: str | None = None
    attributes: list[str] | Literal["*"] | None = None


class Streaming(msgspec.Struct, forbid_unknown_fields=True):
    """How a stream runs; without this table the sources are read once, as tables."""

    checkpoint: str
    release: str
    sources: list[str] = []
    idle: str | None = None
    progress: str | None = None
    trigger: str = "available-now"
    at_end: Literal["wait", "release"] = "wait"
    """When an available-now run has read everything: keep what waits, or release it for good."""
    batches_max: int | None = None
    adapter: Literal["files", "store"] = "files"
    buckets: int | None = None
    """Parts that the state is kept in, and the most tasks there can be; chosen by the cores."""


class Sink(msgspec.Struct, forbid_unknown_fields=True):
    """Where relations go."""

    kind: Literal["parquet", "jsonl", "table", "kafka"]
    path: str = ""
    overwrite: bool = False
    """May results of other runs that lie in the folder be removed?"""
    rows: int = 10
    servers: str = ""
    kafka_topic: str = ""


class Bad(msgspec.Struct, forbid_unknown_fields=True):
    """What becomes of rows that cannot be events, and of late ones."""

    rows: Literal["fail", "skip"] = "fail"
    path: str = ""
    """A folder for rows that were set aside, with the reason."""
    overwrite: bool = False
    unique: str | None = None
    """An id that comes again within this time is such a row."""


class Output(NamedTuple):
    """A folder that results are written to."""

    path: str
    kind: Literal["parquet", "jsonl", "json"]
    overwrite: bool

    @property
    def is_here(self) -> bool:
        """Is it a folder that this process sees?"""
        return "://" not in self.path


class Pipeline(msgspec.Struct, forbid_unknown_fields=True):
    """The whole file."""

    question: Question
    source: list[Source]
    sink: list[Sink]
    name: str = ""
    spark: Spark = msgspec.field(default_factory=Spark)
    stream: Streaming | None = None
    bad: Bad = msgspec.field(default_factory=Bad)
    folder: str = ""
    """Where relative paths begin: the folder of the file, set by the reader."""

    def at(self, path: str) -> str:
        """A path of the file; relative ones begin where the file lies."""
        return path if re.match(r"\w+://", path) else os.path.normpath(Path(self.folder) / path)

    @property
    def outputs(self) -> list[Output]:
        """The folders of its results, and of rows that were set aside."""
        found = [
            Output(self.at(one.path), one.kind, one.overwrite)
            for one in self.sink
            if one.kind in ("parquet", "jsonl")
        ]
        if self.bad.path:
            found.append(Output(self.at(self.bad.path), "json", self.bad.overwrite))
        return found

    def session_options(self) -> dict[str, str]:
        """The options of Spark's session, jars among them."""
        if not self.spark.jars:
            return self.spark.options
        return {**self.spark.options, "spark.jars": ",".join(map(self.at, self.spark.jars))}


def read_pipeline(path: Path) -> Pipeline:
    """The pipeline of a file, checked."""
    try:
        raw = tomllib.loads(path.read_bytes().decode("utf-8"))
    except FileNotFoundError:
        raise UsageError(
            "there is no such pipeline file", hint="check the path", place=str(path)
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise UsageError(
            f"it is no TOML: {error}", hint="see docs/reference/pipeline.md", place=str(path)
        ) from None
    raw.pop("folder", None)
    try:
        pipeline = msgspec.convert(raw, Pipeline)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at ")
        raise UsageError(
            f"{_place(where)}{message.replace('Object', 'it')}",
            hint="docs/reference/pipeline.md lists every table and key",
            place=str(path),
        ) from None
    pipeline.folder = str(path.resolve().parent)
    pipeline.name = pipeline.name or path.stem
    _check(pipeline, str(path))
    return pipeline


def questions_of(pipeline: Pipeline) -> tuple[Subscription, ...]:
    """The subscriptions of a pipeline."""
    asked = pipeline.question
    text: str | Path = asked.subscriptions
    if asked.subscriptions.endswith(".sub"):
        text = Path(pipeline.at(asked.subscriptions))
    return read_subscriptions(text, match=asked.match, consume=asked.consume)


def release_of_stream(stream: Streaming) -> Release:
    """How a stream is released."""
    return release_of(stream.release, sources=stream.sources, idle=stream.idle)


def trigger_of(stream: Streaming) -> dict[str, Any]:
    """The trigger as Spark wants it."""
    if stream.trigger == "available-now":
        return {"availableNow": True}
    found = re.fullmatch(r"(\d+)\s*(ms|s|min)", stream.trigger.strip())
    if found is None:
        raise UsageError(
            f"stream.trigger {stream.trigger!r} is unknown",
            hint="'available-now' (all there is, then stop), or an interval such as '10 s'",
        )
    unit = {"ms": "milliseconds", "s": "seconds", "min": "minutes"}[found[2]]
    return {"processingTime": f"{found[1]} {unit}"}


def _place(where: str) -> str:
    """`$.source[0].path` as `source 1, path: `."""
    inner = where.strip("`").removeprefix("$").removeprefix(".")
    shown = re.sub(r"\[(\d+)\]", lambda found: f" {int(found[1]) + 1}", inner).replace(".", ", ")
    return f"{shown}: " if shown else ""


def _check(pipeline: Pipeline, place: str) -> None:
    def refuse(message: str, hint: str) -> None:
        raise UsageError(message, hint=hint, place=place)

    if not pipeline.source or not pipeline.sink:
        refuse("a pipeline has at least one source and one sink", "add [[source]] or [[sink]]")
    streaming = pipeline.stream is not None
    if sum(one.topic is None for one in pipeline.source) > 1:
        refuse(
            "more than one source has no topic of its own",
            "give all sources but one a topic, or put their files into one folder",
        )
    for number, one in enumerate(pipeline.source, 1):
        where = f"source {number}"
        if one.kind in ("parquet", "jsonl", "csv") and not one.path:
            refuse(f"{where}: a {one.kind} source needs a path", 'path = "events/"')
        if one.kind == "kafka" and not (one.servers and one.kafka_topic and one.fields):
            refuse(
                f"{where}: a kafka source needs servers, kafka_topic and fields",
                'fields = "order_id bigint, at timestamp" (the JSON of the messages)',
            )
        if one.kind == "kafka" and not pipeline.spark.jars and not _has_packages(pipeline):
            refuse(
                f"{where}: Spark's Kafka connector is not part of PySpark",
                'give its jars: [spark] jars = ["spark-sql-kafka-0-10_2.13-….jar", …]',
            )
        if streaming and one.kind in ("jsonl", "csv") and not one.fields:
            refuse(
                f"{where}: a stream of {one.kind} files needs its columns beforehand",
                'fields = "topic string, time timestamp, source string, seq bigint"',
            )
        if min(one.files_per_batch, one.rows_per_batch, one.events) < 1 or one.seed < 0:
            refuse(f"{where}: counts are at least 1, and a seed is not negative", "correct it")
    for number, sink in enumerate(pipeline.sink, 1):
        if sink.kind in ("parquet", "jsonl") and not sink.path:
            refuse(f"sink {number}: a {sink.kind} sink needs a path", 'path = "out/relations"')
        if sink.kind == "kafka" and not (sink.servers and sink.kafka_topic):
            refuse(f"sink {number}: a kafka sink needs servers and kafka_topic", "add them")
    _refuse_shared(pipeline, refuse)
    if pipeline.bad.unique is not None:
        duration_us(pipeline.bad.unique, "unique")
    if pipeline.stream is not None:
        release_of_stream(pipeline.stream)
        trigger_of(pipeline.stream)
        buckets = pipeline.stream.buckets
        if buckets is not None and not 1 <= buckets <= 4096:
            refuse("stream, buckets: from 1 to 4096", "leave it out: four for each core")
        if pipeline.spark.master.startswith("sc://"):
            refuse(
                "stream: a pipeline that streams does not run through Spark Connect, whose server "
                "has no part in the checkpoint",
                "run it where its driver is (spark://…), or leave out [stream] and read a table",
            )
        if pipeline.stream.adapter == "store" and pipeline.stream.at_end == "release":
            refuse(
                "stream: at_end = 'release' needs the state in files",
                "leave adapter out, or at_end",
            )
    questions_of(pipeline)


def _refuse_shared(pipeline: Pipeline, refuse: Callable[[str, str], None]) -> None:
    """Nothing is written where something else lies."""
    taken = [
        (f"sink {number}", pipeline.at(one.path))
        for number, one in enumerate(pipeline.sink, 1)
        if one.path
    ]
    if pipeline.bad.path:
        taken.append(("[bad] path", pipeline.at(pipeline.bad.path)))
    if pipeline.stream is not None:
        taken.append(("the checkpoint", pipeline.at(pipeline.stream.checkpoint)))
    written = len(taken)
    taken += [
        (f"source {number}", pipeline.at(one.path))
        for number, one in enumerate(pipeline.source, 1)
        if one.path
    ]
    for place, (what, path) in enumerate(taken[:written]):
        for other, there in taken[place + 1 :]:
            if f"{path}/".startswith(f"{there}/") or f"{there}/".startswith(f"{path}/"):
                refuse(
                    f"{what} and {other} lie in one folder, {min(path, there, key=len)}",
                    "give each a folder of its own, none within another",
                )


def _has_packages(pipeline: Pipeline) -> bool:
    return any(key in pipeline.spark.options for key in ("spark.jars", "spark.jars.packages"))
