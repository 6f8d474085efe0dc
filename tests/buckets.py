"""The core on Spark without Spark: a case cut into buckets and pieces in plain Python.

It plays what Spark does to rows (filter nothing, spread by partition value, cut anywhere) and gives
the relations back in their order, so that thousands of cases can be compared with the kernel in the
time that Spark takes to start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa

from concordant.correlate.columns import Batch
from concordant.correlate.kernel import Kernel
from concordant.correlate.plan import compile_plan
from concordant.correlate.state import partition_value
from concordant.model.event import Event
from concordant.model.kind import INT_MAX, Kind
from concordant.model.topic import TopicOrder, schemas
from concordant.spark.job import Job, make_job
from concordant.spark.pieces import KEY, PLACE, cut_columns, cutting, merged
from concordant.spark.rows import ID, SEQ, SET, SOURCE, TIME, TOPIC, attribute_column, row_schema
from concordant.spark.step import Bucket, step
from tests.generators import Case

Summary = tuple[Any, ...]


def ordered(case: Case) -> Case:
    """The case as a table has it: in the total order, topics by name."""
    return replace(
        case,
        events=tuple(sorted(case.events, key=lambda event: event.order_key)),
        topic_order=TopicOrder(),
        time_ordered=True,
    )


def job_of(case: Case, **options: Any) -> Job:
    known = {topic.name: topic for topic in case.topics}
    derived = {topic.name: topic for topic in case.derived_topics}
    return make_job(case.subscriptions, known, derived, **options)


def kernel_summaries(case: Case) -> list[Summary]:
    """What the kernel alone delivers, in order."""
    topics = schemas((*case.topics, *case.derived_topics))
    kernel = Kernel(compile_plan(case.subscriptions, topics), time_ordered=case.time_ordered)
    found = kernel.step(Batch.of(case.events, case.topics))
    return [(r.id, r.position, r.at.time, r.at.source, r.at.seq, r.event_ids) for r in found]


def summaries(answers: Any) -> list[Summary]:
    """Relations of an answer table, or of a collected DataFrame, in their order."""
    rows = [row for row in answers.to_pylist() if row["what"] is None]
    rows.sort(key=order_of)
    return [summary(row) for row in rows]


def order_of(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["at"], row["tie"]["source"], row["tie"]["seq"], row["tie"]["rank"])


def summary(row: dict[str, Any]) -> Summary:
    at = pa.scalar(row["at"], pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
    ids = tuple(event["id"] for event in row["events"])
    return (row["id"], row["position"], at, row["tie"]["source"], row["tie"]["seq"], ids)


def rows_of(job: Job, events: Sequence[tuple[int, Event]]) -> Any:
    """Events, each with its set, as travelling rows."""
    names = [topic.name for topic in job.topics]
    rows = []
    for index, event in events:
        row = {
            SET: index,
            TOPIC: names.index(event.topic),
            SOURCE: event.source,
            SEQ: event.seq,
            TIME: event.time,
            ID: None,
        }
        for name, kind in job.columns:
            own = job.topics[names.index(event.topic)].attributes.get(name) is kind
            value = event.attributes.get(name) if own else None
            row[attribute_column(name, kind)] = (
                float(value) if value is not None and kind is Kind.FLOAT else value
            )
        rows.append(row)
    return pa.Table.from_pylist(rows, row_schema(job))


def spread(job: Job, case: Case, count: int) -> list[list[tuple[int, Event]]]:
    """The events of each bucket with their sets, as Spark would send them."""
    found: list[list[tuple[int, Event]]] = [[] for _ in range(count)]
    for index, one in enumerate(job.sets):
        for event in case.events:
            if event.topic in one.topics:
                key = repr((index, partition_value(event, one.key)))
                found[Random(key).randrange(count)].append((index, event))
    return [sorted(bucket, key=lambda pair: pair[1].order_key) for bucket in found]


def pieces(rng: Random, count: int) -> list[slice]:
    """A random cut of so many things."""
    places = sorted(rng.sample(range(1, count), min(count - 1, rng.randint(0, 4)))) if count else []
    return [slice(a, b) for a, b in zip([0, *places], [*places, count], strict=True)]


def bucket_summaries(case: Case, rng: Random, *, saved: bool) -> list[Summary]:
    """What buckets deliver, cut at random; `saved`: through bytes and held back in between."""
    job = job_of(case)
    answers = []
    for bucket in spread(job, case, rng.choice((1, 2, 5))):
        whole, state = Bucket(job), None
        for piece in pieces(rng, len(bucket)):
            table = rows_of(job, bucket[piece])
            if saved:
                following = bucket[piece.stop :]
                until_us = following[0][1].time if following else INT_MAX
                state, answer = step(job, state, table, until_us=until_us)
                answers.append(answer)
            else:
                answers.append(whole.take(table))
    return summaries(pa.concat_tables(answers))


def pieces_of(job: Job, rows: Any, rng: Random, *, places: int) -> dict[int, Any]:
    """Rows cut by some tasks, and the pieces of each place as Spark gives them to its task."""
    count = rng.choice((1, 2, 5))
    owner = pa.array([rng.randrange(count) for _ in range(rows.num_rows)], pa.int32())
    found = []
    for number in range(count):
        mine = rows.filter(pa.compute.equal(owner, number)).select(cut_columns(job))
        batches = mine.combine_chunks().to_batches(max_chunksize=rng.choice((1, 7, 1_000)))
        found += list(cutting(job.packed, range(places))(batches))
    if not found:
        return {}
    table = pa.Table.from_batches(found)
    ordered = table.sort_by([(name, "ascending") for name in KEY])
    return {
        place: ordered.filter(pa.compute.equal(ordered.column(PLACE), place))
        for place in sorted(set(ordered.column(PLACE).to_pylist()))
    }


def table_summaries(case: Case, rng: Random) -> list[Summary]:
    """What the tasks of a table deliver, whose rows come in no order from several files."""
    job = job_of(case)
    sent = [
        (index, event)
        for index, one in enumerate(job.sets)
        for event in case.events
        if event.topic in one.topics
    ]
    rng.shuffle(sent)
    rows = rows_of(job, sent)
    answers = [Bucket(job).take(rows.slice(0, 0))]
    for pieces in pieces_of(job, rows, rng, places=rng.choice((1, 3))).values():
        whole = Bucket(job)
        batches = pieces.combine_chunks().to_batches(max_chunksize=rng.choice((1, 3, 1_000)))
        answers += [whole.take(one) for one in merged(batches, job)]
    return summaries(pa.concat_tables(answers))
