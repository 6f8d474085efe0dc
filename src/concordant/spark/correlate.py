"""The door for Spark: DataFrames and subscriptions in, a DataFrame of relations out.

It joins what is asked with who answers it, and adds nothing to their meaning. A static DataFrame
gives a static one, a stream a stream; nothing runs before somebody asks for rows.
"""

from __future__ import annotations

import operator
from typing import Unpack

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from concordant.errors import UsageError
from concordant.files.subscriptions import Question
from concordant.spark import state_store
from concordant.spark.asked import Events, Options, called
from concordant.spark.job import Job, SlotColumn
from concordant.spark.readable import Scan
from concordant.spark.schema import quoted
from concordant.spark.step import OVER_BUDGET

COUNTS = ("events", "bad", "late", "repeated", "capped")
"""What a stream's buckets count and Spark observes: events matched, rows set aside, and what the
bounds on queues cut off."""


def correlate(events: Events, subscriptions: Question, **options: Unpack[Options]) -> DataFrame:
    """The relations that events form, one row each.

    `events` is a DataFrame with a column `topic` (or of the one topic given by name), or a mapping
    from topic to DataFrame. Every option has its sentence in `Options`: which columns say what
    (`time="ts"`, `source=…`, `seq=…`, `id=…`, `topic_column=…`, `topic=…`), what is shown
    (`attributes`, `select`), what becomes of rows that are no events (`bad`, `unique`, `aside`),
    how the subscriptions match (`match`, `consume`). A stream needs `release`, which says when its
    events may be matched; its state lies in Spark's own store in `bucket_count` blobs, and the
    result is a stream for any sink. Tables that are plain Parquet or CSV files on a local master
    may be read by the workers themselves: `scan="worker"` insists on it, `"jvm"` forbids it, and
    `explain` tells the choice.

    Columns of the result: `subscription`, `conjunction`, `key`, `position`, `id`, `at`, `tie`, then
    for one subscription a struct per slot; for several, or where a slot has the name of another
    column, an array `events`. Rows have no order of their own in Spark; `in_order` sorts them. With
    `select=["key", "Order.id"]` only these columns, and fields of them, are made: Spark's own
    `select` afterwards cannot spare the workers the rest.

    A row that is no event ends the job, unless `bad="skip"`. With `aside=True` the rows that were
    set aside stand among the relations, which then have their events in an array: `what` is `bad`,
    `late` or `repeated`, `reason` says why, and the one event of the array is what is known of the
    row; both are null for relations. What the buckets of a stream counted is observed by Spark
    under the name `metrics` ("concordant").
    """
    call = called(events, subscriptions, options)
    if call.release is None:
        answers = call.asked.answers(call.scan)
    else:
        session = call.asked.inputs[0].frame.sparkSession
        session.conf.set(state_store.PROVIDER, state_store.ROCKSDB)
        answers = state_store.answers_of(
            call.asked.rows(), call.asked.job, call.release, call.bucket_count
        ).observe(call.metrics, *_observed())
    if call.aside:
        return answers.filter(F.col("what").isNull() | (F.col("what") != "counts"))
    return answers if call.release is None else relations(answers)


def explain(events: Events, subscriptions: Question, **options: Unpack[Options]) -> str:
    """How `correlate` would do the same: what is matched together, what travels, who reads it."""
    call = called(events, subscriptions, options)
    job = call.asked.job
    lines = []
    for number, one in enumerate(job.sets, 1):
        names = ", ".join(each.name for each in one.subscriptions)
        place = f"spread by {', '.join(one.key)}" if one.key else "in one task, having no key"
        lines.append(f"set {number}: {names}; {place}; topics {', '.join(one.topics)}")
    columns = ", ".join(f"{name} ({kind})" for name, kind in job.columns)
    lines.append(f"attributes that travel: {columns or 'none'}")
    if call.release is not None:
        lines.append(f"a stream, released by {call.release}; state in {call.bucket_count} buckets")
        return "\n".join(lines)
    found = call.asked.reader(call.scan)
    if isinstance(found, Scan):
        count = sum(len(one.files) for one in found.inputs)
        lines.append(f"read by the workers: {found.task_count} tasks scan {count} files")
    else:
        lines.append(f"read by Spark, filtered there and shuffled: {found}")
    return "\n".join(lines)


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
    return found.orderBy("at", "tie", *(F.col(quoted(name)) for name in last))


def relations(answers: DataFrame) -> DataFrame:
    """The relations among a job's answers."""
    return answers.filter(F.col("what").isNull()).drop("what", "reason")


def by_slot(found: DataFrame, job: Job) -> DataFrame:
    """Relations with a column per slot instead of the array, where there is one question."""
    if not job.slots:
        return found
    return found.select("*", *map(_column, job.slots)).drop("events")


def _observed() -> list[Column]:
    """What the buckets count, summed up over a micro-batch."""
    told = F.when(F.col("what") == "counts", F.from_json("reason", "map<string, bigint>"))
    long = F.map_values(F.map_filter(told, lambda name, _: name.startswith(OVER_BUDGET)))
    counts = {name: told[name] for name in COUNTS}
    counts["long_searches"] = F.aggregate(long, F.lit(0).cast("bigint"), operator.add)
    return [F.coalesce(F.sum(one), F.lit(0)).alias(name) for name, one in counts.items()]


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
