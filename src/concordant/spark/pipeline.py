"""A pipeline as a file says it: sources, question, release, sinks. Checked before Spark starts.

Knows the shape of the file and which settings go together, and turns every slip into an error that
names file, table and key. It opens no source and writes no sink.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from concordant.errors import UsageError
from concordant.files.subscriptions import read_subscriptions
from concordant.model.subscription import Subscription
from concordant.spark.release import Release, duration_us, release_of
from concordant.spark.slips import refuse_slips


class Source(msgspec.Struct):
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


class Spark(msgspec.Struct):
    """Where it runs."""

    master: str = "local[*]"
    options: dict[str, str | int | float | bool] = {}
    jars: list[str] = []


class Question(msgspec.Struct):
    """What is asked."""

    subscriptions: str
    match: str | None = None
    consume: str | None = None
    attributes: list[str] | Literal["*"] | None = None


class Streaming(msgspec.Struct):
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
    relations_max: int | None = None
    time_max: str | None = None
    """A run stops when it has done so much or so long, and the next goes on."""
    adapter: Literal["files", "store"] = "files"
    buckets: int | None = None
    """Parts that the state is kept in, and the most tasks there can be; chosen by the cores."""


class Sink(msgspec.Struct):
    """Where relations go."""

    kind: Literal["parquet", "jsonl", "table", "kafka"]
    path: str = ""
    overwrite: bool = False
    """May results of other runs that lie in the folder be removed?"""
    rows: int = 10
    servers: str = ""
    kafka_topic: str = ""


class Bad(msgspec.Struct):
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


class _File(msgspec.Struct):
    """The tables of a file."""

    question: Question
    source: list[Source]
    sink: list[Sink]
    name: str = ""
    spark: Spark = msgspec.field(default_factory=Spark)
    stream: Streaming | None = None
    bad: Bad = msgspec.field(default_factory=Bad)


class Pipeline(_File):
    """A file that was read."""

    folder: str = ""
    """Where relative paths begin: the folder of the file, set by the reader."""

    @property
    def generated(self) -> str:
        """Where the events of a generator lie whose path is not said."""
        return f"out/{self.name}/events"

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

    @property
    def summary(self) -> dict[str, Any]:
        """What will be done, for people and programs: settings that differ from the usual ones."""
        found: dict[str, Any] = {
            "name": self.name,
            "master": self.spark.master,
            "subscriptions": [one.name for one in questions_of(self)],
        }
        for table in ("source", "sink"):
            found[f"{table}s"] = [self._told(one) for one in getattr(self, table)]
        if self.stream is not None:
            found["stream"] = {**self._told(self.stream), "release": self.stream.release}
        if self.bad.path or self.bad.rows == "skip" or self.bad.unique:
            found["bad"] = self._told(self.bad)
        return found

    def _told(self, table: msgspec.Struct) -> dict[str, Any]:
        told = {
            field.name: value
            for field in msgspec.structs.fields(table)
            if (value := getattr(table, field.name)) not in (field.default, [], {})
        }
        return {k: self.at(v) if k in ("path", "checkpoint") else v for k, v in told.items()}

    def session_options(self) -> dict[str, str]:
        """The options of Spark's session, jars among them."""
        found = {
            key: str(value).lower() if isinstance(value, bool) else str(value)
            for key, value in self.spark.options.items()
        }
        if self.spark.jars:
            found["spark.jars"] = ",".join(map(self.at, self.spark.jars))
        return found


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
    try:
        refuse_slips(raw, _File)
        pipeline = Pipeline(**msgspec.structs.asdict(msgspec.convert(raw, _File)))
        pipeline.folder = str(path.resolve().parent)
        pipeline.name = pipeline.name or path.stem
        _check(pipeline, raw)
    except UsageError as error:
        raise error if error.place else error.located(str(path)) from None
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
    found = re.fullmatch(r"(\d+)\s*(ms|s|min|h)", stream.trigger.strip())
    if found is None or not int(found[1]):
        raise UsageError(
            f"{stream.trigger!r} is no trigger",
            hint="'available-now' (all there is, then stop), or an interval such as '10 s'",
        )
    unit = {"ms": "milliseconds", "s": "seconds", "min": "minutes", "h": "hours"}[found[2]]
    return {"processingTime": f"{found[1]} {unit}"}


_OF_FILES = ("path", "fields", "files_per_batch")
_OF_EVENTS = ("kind", "topic", "time", "source", "seq", "id", "topic_column")
_SOURCE_KEYS = {
    "parquet": (*_OF_EVENTS, *_OF_FILES),
    "jsonl": (*_OF_EVENTS, *_OF_FILES),
    "csv": (*_OF_EVENTS, *_OF_FILES, "separator", "header", "multiline"),
    "kafka": (*_OF_EVENTS, "fields", "servers", "kafka_topic", "rows_per_batch"),
    "generator": (*_OF_EVENTS, "path", "files_per_batch", "events", "seed"),
}
_SINK_KEYS = {
    "parquet": ("kind", "path", "overwrite"),
    "jsonl": ("kind", "path", "overwrite"),
    "table": ("kind", "rows"),
    "kafka": ("kind", "servers", "kafka_topic"),
}
_EXAMPLES = {
    "path": 'path = "events/"',
    "servers": 'servers = "host:9092"',
    "kafka_topic": 'kafka_topic = "orders"',
    "fields": 'fields = "order_id bigint, at timestamp"',
}
_NUMBERS = {
    "files_per_batch": (1, 1_000_000),
    "rows_per_batch": (1, 10**12),
    "events": (1, 10**9),
    "seed": (0, 2**63 - 1),
    "rows": (1, 10_000),
    "buckets": (1, 4096),
    "batches_max": (1, 10**9),
    "relations_max": (1, 10**15),
}


def _check(pipeline: Pipeline, raw: Mapping[str, Any]) -> None:
    if not pipeline.source or not pipeline.sink:
        raise UsageError(
            "a pipeline has at least one source and one sink", hint="add [[source]] or [[sink]]"
        )
    if sum(one.topic is None for one in pipeline.source) > 1:
        raise UsageError(
            "more than one source has no topic of its own",
            hint="give all sources but one a topic, or put their files into one folder",
        )
    for number, (source, said) in enumerate(zip(pipeline.source, raw["source"], strict=True), 1):
        _check_kind(f"source {number}", source.kind, said, _SOURCE_KEYS)
        _check_source(f"source {number}", source, pipeline)
    for number, (sink, said) in enumerate(zip(pipeline.sink, raw["sink"], strict=True), 1):
        _check_kind(f"sink {number}", sink.kind, said, _SINK_KEYS)
        needed = [one for one in ("path", "servers", "kafka_topic") if one in _SINK_KEYS[sink.kind]]
        _check_given(f"sink {number}", sink, needed)
        if sink.kind == "jsonl" and "://" in sink.path:
            raise UsageError(
                f"sink {number}, path: JSON Lines are written by this process, into a folder that "
                "it sees",
                hint="give such a folder, or write Parquet, which Spark writes anywhere",
            )
    _refuse_shared(pipeline)
    if pipeline.bad.unique is not None:
        with _in("bad, unique"):
            duration_us(pipeline.bad.unique, "unique")
    if pipeline.stream is not None:
        _check_stream(pipeline.stream, pipeline.spark.master, raw["stream"])
    with _in("question, subscriptions"):
        questions_of(pipeline)


@contextmanager
def _in(table: str) -> Iterator[None]:
    """What is wrong here is told with its table."""
    try:
        yield
    except UsageError as error:
        if error.place.endswith(".sub"):
            raise
        where = f"{table}, {error.place}" if error.place else table
        raise UsageError(f"{where}: {error.message}", hint=error.hint) from None


def _check_kind(
    place: str, kind: str, said: Mapping[str, Any], known: Mapping[str, Sequence[str]]
) -> None:
    """What a kind has no use for is refused, and numbers have bounds."""
    for key in said:
        if key not in known[kind]:
            others = [one for one, keys in known.items() if key in keys]
            raise UsageError(
                f"{place}: '{key}' means nothing to the kind {kind}, but to {', '.join(others)}",
                hint=f"remove it; of {kind} there are {', '.join(known[kind])}",
            )
    _check_numbers(place, said)


def _check_numbers(place: str, said: Mapping[str, Any]) -> None:
    for key, value in said.items():
        if key in _NUMBERS and type(value) is int:
            low, high = _NUMBERS[key]
            if not low <= value <= high:
                raise UsageError(
                    f"{place}, {key}: it is from {low:,} to {high:,}, and not {value:,}",
                    hint=f"{key} = {min(max(value, low), high)}",
                )


def _check_given(place: str, table: Source | Sink, keys: Iterable[str]) -> None:
    for key in keys:
        if not getattr(table, key):
            raise UsageError(f"{place}: the kind {table.kind} needs '{key}'", hint=_EXAMPLES[key])


def _check_source(place: str, source: Source, pipeline: Pipeline) -> None:
    if source.kind in ("parquet", "jsonl", "csv"):
        _check_given(place, source, ["path"])
    if source.kind == "kafka":
        _check_given(place, source, ["servers", "kafka_topic", "fields"])
        if not pipeline.spark.jars and not _has_packages(pipeline):
            raise UsageError(
                f"{place}: Spark's Kafka connector is not part of PySpark",
                hint='give its jars: [spark] jars = ["spark-sql-kafka-0-10_2.13-….jar", …]',
            )
    if pipeline.stream is not None and source.kind in ("jsonl", "csv") and not source.fields:
        raise UsageError(
            f"{place}: a stream of {source.kind} files needs its columns beforehand",
            hint='fields = "topic string, time timestamp, source string, seq bigint"',
        )
    if not source.header and not source.fields:
        raise UsageError(
            f"{place}: CSV files without a header need the names of their columns",
            hint='fields = "topic string, time timestamp, source string, seq bigint"',
        )
    if len(source.separator) != 1 or source.separator in '"\n\r\\':
        raise UsageError(
            f"{place}, separator: it is one character, no quote, backslash or line break, and not "
            f"{source.separator!r}",
            hint='separator = ";"',
        )


def _check_stream(stream: Streaming, master: str, said: Mapping[str, Any]) -> None:
    _check_numbers("stream", said)
    if not stream.checkpoint:
        raise UsageError("stream, checkpoint: it is a folder", hint='checkpoint = "out/checkpoint"')
    if "://" in stream.checkpoint:
        raise UsageError(
            "stream, checkpoint: it is a folder that this process and all workers see, and no "
            "address",
            hint='mount shared storage, and give the folder: checkpoint = "/mnt/…/checkpoint"',
        )
    with _in("stream, release"):
        release_of_stream(stream)
    with _in("stream, trigger"):
        trigger_of(stream)
    if stream.time_max is not None:
        with _in("stream, time_max"):
            duration_us(stream.time_max, "time_max")
    if master.startswith("sc://"):
        raise UsageError(
            "stream: a pipeline that streams does not run through Spark Connect, whose server "
            "has no part in the checkpoint",
            hint="run it where its driver is (spark://…), or leave out [stream] and read a table",
        )
    if stream.adapter == "store" and stream.at_end == "release":
        raise UsageError(
            "stream: at_end = 'release' needs the state in files",
            hint="leave adapter out, or at_end",
        )


def _refuse_shared(pipeline: Pipeline) -> None:
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
        (f"source {number}", pipeline.at(one.path or pipeline.generated))
        for number, one in enumerate(pipeline.source, 1)
        if one.path or one.kind == "generator"
    ]
    for place, (what, path) in enumerate(taken[:written]):
        for other, there in taken[place + 1 :]:
            if f"{path}/".startswith(f"{there}/") or f"{there}/".startswith(f"{path}/"):
                raise UsageError(
                    f"{what} and {other} lie in one folder, {min(path, there, key=len)}",
                    hint="give each a folder of its own, none within another",
                )


def _has_packages(pipeline: Pipeline) -> bool:
    return any(key in pipeline.spark.options for key in ("spark.jars", "spark.jars.packages"))
