"""The door for Spark: DataFrames and subscriptions in, a DataFrame of relations out.

It joins the layers (schema, check, job, rows, step) and adds nothing to their meaning. A static
DataFrame gives a static one; nothing runs before somebody asks for rows. What the schemas show to
be wrong is refused here, in the words of `concordant.local`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from concordant.errors import UsageError
from concordant.files.part import Names
from concordant.files.subscriptions import Question, checked_question, read_subscriptions
from concordant.model.emission import emitters
from concordant.spark import batch, state_store
from concordant.spark.job import Job, SlotColumn, make_job, read_by
from concordant.spark.normalise import travelling
from concordant.spark.release import Release, duration_us, release_of
from concordant.spark.scan import Scan, scan_of
from concordant.spark.scan import answers_of as scanned
from concordant.spark.schema import Input, read_schema, topics_of

Events = DataFrame | Mapping[str, DataFrame] | Sequence[Input]
"""One DataFrame, one per topic, or inputs whose schemas were read already."""

SCANS = ("auto", "jvm", "worker")
"""Who reads tables: whoever is quicker, Spark, or the workers that match."""


@dataclass(frozen=True)
class Asked:
    """A question over DataFrames, checked and ready to run."""

    job: Job
    inputs: tuple[Input, ...]
    progress: str | None = None

    def relations_only(self, select: Sequence[str] = ()) -> Asked:
        """The same question, answered with nothing but relations: by slot where that can be."""
        return replace(self, job=self.job.relations_only(select))

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
        if scan not in SCANS:
            raise UsageError(f"scan={scan!r} is unknown", hint=f"one of {', '.join(SCANS)}")
        if scan == "jvm":
            return "that is what was asked for"
        found = scan_of(self.inputs, self.job)
        if scan == "worker" and isinstance(found, str):
            raise UsageError(
                f"the workers cannot read the events themselves: {found}",
                hint="leave scan out, and Spark reads them",
            )
        return found


def correlate(
    events: Events,
    subscriptions: Question,
    *,
    match: str | None = None,
    consume: str | None = None,
    attributes: Sequence[str] | str | None = None,
    bad: str = "fail",
    unique: str | None = None,
    topic: str | None = None,
    release: str | Release | None = None,
    bucket_count: int = 16,
    scan: str = "auto",
    select: Sequence[str] = (),
    **columns: Any,
) -> DataFrame:
    """The relations that events form, one row each.

    `events` is a DataFrame with a column `topic` (or of the one topic given by name), or a mapping
    from topic to DataFrame. `columns` name the columns to use: `time="ts"`, `source=…`, `seq=…`,
    `id=…`, `topic_column=…`. `attributes` are shown with each event: those named, `"*"` for all, or
    those that the subscriptions read. A row that cannot be an event ends the job, or is left out
    with `bad="skip"`; with `unique="10 min"` so is one whose id was there so shortly before, in the
    same partition. For a stream, `release` says when its events may be matched, the state lies
    in Spark's own store in `bucket_count` blobs, and the result is a stream for any sink. Tables
    that are plain Parquet or CSV files on a local master may be read by the workers themselves:
    `scan="worker"` insists on it, `"jvm"` forbids it, and `explain` tells the choice.

    Columns of the result: `subscription`, `conjunction`, `key`, `position`, `id`, `at`, `tie`, then
    for one subscription a struct per slot, for several an array `events`. Rows have no order of
    their own in Spark; `in_order` sorts them. With `select=["key", "Order.id"]` only these columns,
    and fields of them, are made: Spark's own `select` afterwards cannot spare the workers the rest.
    """
    mode = _mode(events, release)
    asked = ask(
        events,
        subscriptions,
        time_ordered=mode is None or mode.mode != "log",
        match=match,
        consume=consume,
        attributes=attributes,
        bad=bad,
        unique=unique,
        topic=topic,
        **columns,
    )
    asked = asked.relations_only([select] if isinstance(select, str) else select)
    if mode is None:
        return asked.answers(scan)
    session = asked.inputs[0].frame.sparkSession
    session.conf.set(state_store.PROVIDER, state_store.ROCKSDB)
    return state_store.answers_of(asked.rows(), asked.job, mode, bucket_count)


def explain(events: Events, subscriptions: Question, *, scan: str = "auto", **options: Any) -> str:
    """How tables would be correlated: what is matched together, what travels, who reads it."""
    asked = ask(events, subscriptions, **options)
    found = asked.reader(scan)
    lines = []
    for number, one in enumerate(asked.job.sets, 1):
        names = ", ".join(each.name for each in one.subscriptions)
        place = f"spread by {', '.join(one.key)}" if one.key else "in one task, having no key"
        lines.append(f"set {number}: {names}; {place}; topics {', '.join(one.topics)}")
    columns = ", ".join(f"{name} ({kind})" for name, kind in asked.job.columns)
    lines.append(f"attributes that travel: {columns or 'none'}")
    if isinstance(found, Scan):
        count = sum(len(one.files) for one in found.inputs)
        lines.append(f"read by the workers: {found.task_count} tasks scan {count} files")
    else:
        lines.append(f"read by Spark, filtered there and shuffled: {found}")
    return "\n".join(lines)


def _mode(events: Events, release: str | Release | None) -> Release | None:
    """How a stream is released; tables are complete and need no word."""
    frames: list[Any] = list(events.values()) if isinstance(events, Mapping) else [events]
    streaming = any(getattr(frame, "isStreaming", False) for frame in frames)
    if streaming and release is None:
        raise UsageError(
            "the events are a stream, and nothing says when events may be released",
            hint="release='frontier' waits for every source, 'watermark 10 s' waits so long, 'log' "
            "takes one source's numbers for the order",
        )
    if not streaming and release is not None:
        raise UsageError(
            "a table is complete: there is nothing to release", hint="leave release out"
        )
    return release_of(release) if isinstance(release, str) else release


def in_order(found: DataFrame) -> DataFrame:
    """Relations in the order in which the kernel delivers them.

    Events of two partitions may have one place: their relations go by id, or else by what is shown.
    """
    if missing := {"at", "tie"} - set(found.columns):
        raise UsageError(
            f"relations are sorted by 'at' and 'tie', and there is no '{min(missing)}'",
            hint="select both: select=[…, 'at', 'tie']",
        )
    last = ["id"] if "id" in found.columns else [c for c in found.columns if c not in ("at", "tie")]
    return found.orderBy("at", "tie", *(F.col(f"`{name.replace('`', '``')}`") for name in last))


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
    question: Question = "",
) -> Asked:
    """Check a question against the schemas of DataFrames; no job starts."""
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
    try:
        good, derived = checked_question(wanted, topics, question=question or subscriptions)
    except UsageError:
        _refuse_unusable(inputs, read_by(wanted), ())
        raise
    read = {topic: names for topic, names in read_by(good).items() if topic in topics}
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


def relations(answers: DataFrame) -> DataFrame:
    """The relations among a job's answers, each with its events in an array."""
    return answers.filter(F.col("what").isNull()).drop("what", "reason")


def by_slot(found: DataFrame, job: Job) -> DataFrame:
    """Relations with a column per slot instead of the array, where there is one question."""
    if not job.slots:
        return found
    return found.select("*", *map(_column, job.slots)).drop("events")


def _column(slot: SlotColumn) -> Column:
    event: Column | None = None
    for number, place in slot.places.items():
        one = F.get(F.col("events"), F.lit(place))
        if slot.everywhere and len(set(slot.places.values())) == 1:
            event = one
        elif event is None:
            event = F.when(F.col("conjunction") == number, one)
        else:
            event = event.when(F.col("conjunction") == number, one)
    assert event is not None
    shown = [event[field].alias(name) for name, field in slot.fields]
    return F.when(event.isNotNull(), F.struct(*shown)).alias(slot.name)


def _inputs(events: Events, names: Names, topic: str | None) -> list[Input]:
    given: list[tuple[DataFrame, str | None, bool]]
    if isinstance(events, Sequence):
        return list(events)
    if isinstance(events, Mapping):
        given = [(frame, name, True) for name, frame in events.items()]
    else:
        given = [(events, topic, False)]
    if not given:
        raise UsageError("there is no input", hint="give a DataFrame, or {'Topic': DataFrame}")
    found = []
    for number, (frame, name, own) in enumerate(given, 1):
        if not hasattr(frame, "mapInArrow"):
            raise UsageError(
                f"a {type(frame).__name__} is no DataFrame of Spark",
                hint="for files and tables in memory use concordant.local.correlate",
            )
        table = "table" if len(given) == 1 else f"table{number}"
        found.append(read_schema(frame, table, names=names, topic=name, own_topic=own))
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
