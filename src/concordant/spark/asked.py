"""What is asked: a question over DataFrames and its options, checked before anything runs.

It joins schemas, subscriptions and options into a job, and says how that job may be answered. What
the schemas show to be wrong is refused here in the words of `concordant.local`; what does not go
together, in a sentence of its own. It starts no job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from pyspark.sql import DataFrame

from concordant.errors import UsageError
from concordant.files.part import Names
from concordant.files.subscriptions import Question, checked_question, read_subscriptions
from concordant.language.clauses import suggestion
from concordant.model.emission import emitters
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark import batch
from concordant.spark.job import Job, Selected, make_job, read_by
from concordant.spark.normalise import travelling
from concordant.spark.readable import Scan, scan_of
from concordant.spark.release import Release, duration_us, release_of
from concordant.spark.scan import answers_of as scanned
from concordant.spark.schema import Input, read_schema, topics_of

Events = DataFrame | Mapping[str, DataFrame] | Sequence[Input]
"""One DataFrame, one per topic, or inputs whose schemas were read already."""

SCANS = ("auto", "jvm", "worker")
"""Who reads tables: whoever is quicker, Spark, or the workers that match."""

BUCKET_COUNT = 16
METRICS = "concordant"


class Options(TypedDict, total=False):
    """The options of `correlate` and `explain`."""

    match: str | None
    """The matching of subscriptions that say none, such as `"recent"`."""
    consume: str | None
    """The consumption of subscriptions that say none, such as `"matched"`."""
    attributes: Sequence[str] | str | None
    """Attributes that are shown with each event: those named, `"*"` for all, or (None) those that
    the subscriptions read."""
    bad: str
    """What becomes of a row that cannot be an event: `"fail"` ends the job, `"skip"` sets it
    aside."""
    unique: str | None
    """`"10 min"`: an event whose id was there so shortly before, in its partition, is repeated."""
    topic: str | None
    """The topic of all rows, where no column says it."""
    topic_column: str
    time: str
    source: str
    seq: str
    id: str
    """Names of columns; by default `topic`, `time`, `source`, `seq` and `id`."""
    release: str | Release | None
    """When a stream lets events go: `"frontier"`, `"watermark 10 s"` or `"log"`."""
    bucket_count: int
    """Of a stream: in how many blobs its state lies."""
    metrics: str
    """Of a stream: the name under which Spark observes what was done and set aside."""
    scan: str
    """Of tables: who reads them, `"auto"`, `"jvm"` or `"worker"`."""
    select: Sequence[Selected] | str
    """Columns of the result, and fields of them, that are made: `"key"`, `"Order.id"` or, where a
    name has dots itself, `("Order", "customer.id")`."""
    aside: bool
    """Shall rows that were set aside be told among the relations?"""


_OF_STREAMS = ("bucket_count", "metrics")
_OF_CALLS = (*_OF_STREAMS, "release", "scan", "select", "aside")
"""Options that do not change what is asked, but how it is answered."""

_NUMBERS = {"bucket_count": int, "aside": bool}
_LISTS = ("attributes", "select")


@dataclass(frozen=True)
class Asked:
    """A question over DataFrames, checked and ready to run."""

    job: Job
    inputs: tuple[Input, ...]
    progress: str | None = None

    def relations_only(self) -> Asked:
        """The same question, answered with nothing but relations: by slot where that can be."""
        return replace(self, job=self.job.relations_only())

    def rows(self) -> DataFrame:
        """The rows that travel."""
        return travelling(self.inputs, self.job, progress=self.progress)

    def answers(self, scan: str = "auto") -> DataFrame:
        """Everything that the job answers to tables, read by Spark or by its workers."""
        found = self.reader(scan)
        if isinstance(found, Scan):
            return scanned(found, self.job)
        return batch.answers_of(self.rows(), self.job)

    def reader(self, scan: str) -> Scan | str:
        """How the workers read tables themselves, or why Spark does."""
        if scan == "jvm":
            return "that is what was asked for"
        found = scan_of(self.inputs, self.job)
        if scan == "worker" and isinstance(found, str):
            raise UsageError(
                f"the workers cannot read the events themselves: {found}",
                hint="leave scan out, and Spark reads them",
            )
        return found


@dataclass(frozen=True)
class Call:
    """A question and how its answer is wanted."""

    asked: Asked
    release: Release | None
    """Of a stream; tables are complete."""
    bucket_count: int = BUCKET_COUNT
    metrics: str = METRICS
    scan: str = "auto"
    aside: bool = False


def called(events: Events, subscriptions: Question, options: Mapping[str, Any]) -> Call:
    """The question that is asked by the arguments of `correlate` or `explain`."""
    _check_options(options)
    options = {name: value for name, value in options.items() if value is not None}
    frames = frames_of(events)
    if isinstance(events, Mapping) and options.get("topic") is not None:
        raise UsageError(
            f"topic='{options['topic']}' beside a mapping, whose keys are the topics",
            hint="leave topic out, or give the one DataFrame without the mapping",
        )
    release = _release(frames, options)
    aside = options.get("aside", False)
    asked = ask(
        events,
        subscriptions,
        time_ordered=release is None or release.mode != "log",
        **{"bad": "skip" if aside else "fail"}
        | {name: value for name, value in options.items() if name not in _OF_CALLS},
    )
    select = options.get("select", ())
    select = [select] if isinstance(select, str) else select
    if aside:
        job = asked.job.with_aside(select)
    else:
        job = asked.job.relations_only(select, counted=release is not None)
    rest = {name: options[name] for name in ("bucket_count", "metrics", "scan") if name in options}
    return Call(replace(asked, job=job), release, aside=aside, **rest)


def ask(
    events: Events,
    subscriptions: Question,
    *,
    match: str | None = None,
    consume: str | None = None,
    attributes: Sequence[str] | str | None = None,
    bad: str = "fail",
    unique: str | None = None,
    topic: str | None = None,
    topic_column: str = "topic",
    time: str = "time",
    source: str = "source",
    seq: str = "seq",
    id: str = "id",
    time_ordered: bool = True,
    progress: str | None = None,
    generations: Sequence[Sequence[str]] | None = None,
    muted: Sequence[str] = (),
    gone: Mapping[str, Mapping[str, Kind]] | None = None,
    question: Question = "",
) -> Asked:
    """Check a question against the schemas of DataFrames; no job starts.

    `gone` are attributes, by topic, that muted subscriptions read and no input need have.
    """
    if bad not in ("fail", "skip"):
        raise UsageError(f"bad={bad!r} is unknown", hint="'fail' or 'skip'")
    wanted = read_subscriptions(subscriptions, match=match, consume=consume)
    names = Names(topic=topic_column, source=source, seq=seq, time=time, id=id)
    if len(set(names.all)) < len(names.all):
        raise UsageError(
            "one column is named for two purposes",
            hint="time, source, seq, id and topic come from different columns",
        )
    inputs = _inputs(events, names, topic)
    derived_names = emitters(wanted)
    topics = topics_of(
        inputs, tuple(t for one in wanted for t in one.topics if t not in derived_names)
    )
    for name, kinds in (gone or {}).items():
        now = topics[name].attributes if name in topics else {}
        topics[name] = Topic(name, {**kinds, **now})
    try:
        good, derived = checked_question(wanted, topics, question=question or subscriptions)
    except UsageError:
        _refuse_unusable(inputs, read_by(wanted), ())
        raise
    read = {name: found for name, found in read_by(good).items() if name in topics}
    _refuse_unusable(inputs, read, attributes)
    job = make_job(
        good,
        topics,
        derived,
        attributes=attributes,
        time_ordered=time_ordered,
        skip_bad=bad == "skip",
        unique_us=0 if unique is None else duration_us(unique, "unique"),
        generations=generations,
        muted=muted,
    )
    return Asked(job, tuple(inputs), progress)


def _check_options(options: Mapping[str, Any]) -> None:
    """Refuse options that are none, and values of another type than theirs."""
    known = Options.__annotations__
    for name, value in options.items():
        if name not in known:
            raise UsageError(
                f"there is no option '{name}'",
                hint=suggestion(name, known) or f"the options are {', '.join(known)}",
            )
        kind = _NUMBERS.get(name, str)
        if value is None or (name in _LISTS and isinstance(value, Iterable)):
            continue
        if name == "release" and isinstance(value, Release):
            continue
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            what = {str: "a text", int: "a whole number", bool: "True or False"}[kind]
            raise UsageError(
                f"{name}={value!r} is no {what}" if kind is bool else f"{name}={value!r}",
                hint=f"{name} is {what}",
            )
    scan = options.get("scan")
    if scan is not None and scan not in SCANS:
        raise UsageError(f"scan={scan!r} is unknown", hint=f"one of {', '.join(SCANS)}")
    count = options.get("bucket_count")
    if count is not None and count < 1:
        raise UsageError(
            f"bucket_count={count}: there is no bucket for the state",
            hint="one or more; several let several tasks match",
        )


def _release(frames: Sequence[Any], options: Mapping[str, Any]) -> Release | None:
    """How a stream is released; tables are complete and need no word."""
    release: str | Release | None = options.get("release")
    kinds = {bool(frame.isStreaming) for frame in frames}
    if len(kinds) > 1:
        raise UsageError(
            "some of the DataFrames are streams and some are tables",
            hint="read all of them with readStream, or all of them with read",
        )
    if True not in kinds:
        if release is not None:
            raise UsageError(
                "a table is complete: there is nothing to release", hint="leave release out"
            )
        for name in _OF_STREAMS:
            if name in options:
                raise UsageError(
                    f"{name} is for streams, and the events are a table",
                    hint=f"leave {name} out",
                )
        return None
    if release is None:
        raise UsageError(
            "the events are a stream, and nothing says when events may be released",
            hint="release='frontier' waits for every source, 'watermark 10 s' waits so long, 'log' "
            "takes one source's numbers for the order",
        )
    if options.get("scan", "auto") != "auto":
        raise UsageError(
            f"scan='{options['scan']}' is for tables: Spark reads streams itself",
            hint="leave scan out",
        )
    return release_of(release) if isinstance(release, str) else release


def frames_of(events: Any) -> list[Any]:
    """The DataFrames among which a question is asked, all of one session."""
    if isinstance(events, Mapping):
        found = list(events.values())
    elif isinstance(events, Sequence) and not isinstance(events, str):
        found = [one.frame if isinstance(one, Input) else one for one in events]
        if any(not isinstance(one, Input) for one in events):
            raise UsageError(
                "a list does not say which topics its DataFrames hold",
                hint="give a mapping: {'Order': orders, 'Payment': payments}",
            )
    else:
        found = [events]
    if not found:
        raise UsageError("there is no input", hint="give a DataFrame, or {'Topic': DataFrame}")
    for frame in found:
        if not hasattr(frame, "mapInArrow"):
            raise UsageError(
                f"a {type(frame).__name__} is no DataFrame of Spark",
                hint="for files and tables in memory use concordant.local.correlate",
            )
    if any(not _share_session(found[0], frame) for frame in found[1:]):
        raise UsageError(
            "the DataFrames belong to several sessions of Spark",
            hint="make all of them with one session",
        )
    return found


def _share_session(one: Any, other: Any) -> bool:
    """Do two DataFrames belong to one session, whichever objects stand for it here?"""
    mine, yours = one.sparkSession, other.sparkSession
    if mine is yours:
        return True
    inner = [getattr(each, "_jsparkSession", None) or each.session_id for each in (mine, yours)]
    return bool(inner[0] == inner[1])


def _inputs(events: Events, names: Names, topic: str | None) -> list[Input]:
    frames = frames_of(events)
    if isinstance(events, Sequence):
        return list(events)
    if not isinstance(events, Mapping):
        return [read_schema(frames[0], "table", names=names, topic=topic, own_topic=False)]
    found = []
    for number, (name, frame) in enumerate(zip(events, frames, strict=True), 1):
        if not isinstance(name, str) or not name:
            raise UsageError(
                f"{name!r} is no name of a topic", hint="give a mapping: {'Order': orders}"
            )
        table = "table" if len(frames) == 1 else f"table{number}"
        found.append(read_schema(frame, table, names=names, topic=name, own_topic=True))
    return found


def _refuse_unusable(
    inputs: Sequence[Input], read: Mapping[str, set[str]], shown: Sequence[str] | str | None
) -> None:
    """Of a column that is there, but cannot be an attribute, that is the better sentence."""
    more = {shown} if isinstance(shown, str) else {*(shown or ())}
    for topic, names in read.items():
        for one in inputs:
            if one.topic in (None, topic):
                for name in sorted(names | more):
                    one.refuse_unusable(name)
