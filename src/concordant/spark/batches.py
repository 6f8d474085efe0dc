"""A batch of events that was read here, correlated on Spark: for `concordant correlate`.

The events were read and checked by `files`, so that ids, kinds and refusals are those of the local
engine; Spark spreads the matching. Input that does not fit into the memory of this process belongs
into a pipeline or a DataFrame of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from concordant.correlate.columns import Batch
from concordant.correlate.state import Counters
from concordant.files.order import in_order
from concordant.files.subscriptions import Question, checked_question
from concordant.files.write import array_of
from concordant.model.event import Event, OrderKey
from concordant.model.relation import Relation
from concordant.model.subscription import Subscription
from concordant.spark.asked import ask
from concordant.spark.job import make_job
from concordant.spark.numbered import answers_of, task_count
from concordant.spark.relations import key_and_ordinal
from concordant.spark.spool import share, write_shares
from concordant.spark.step import OVER_BUDGET


def correlate_on(
    session: Any, batch: Batch, subscriptions: Sequence[Subscription], *, question: Question = ""
) -> tuple[list[Relation], dict[str, Counters]]:
    """The relations of a batch, in order, and what of the counters people should hear of.

    A slip is told in the words of the local engine.
    """
    with _answers(session, batch, subscriptions, question) as answers:
        rows = _with_numbers(answers.toArrow()).to_pylist()
    counts: Counter[str] = Counter()
    for row in rows:
        if row["what"] is not None:
            counts.update(msgspec.json.decode(row["reason"], type=dict[str, int]))
    found = sorted((row for row in rows if row["what"] is None), key=_place)
    return [_relation(row) for row in found], _counters(counts, subscriptions)


@contextmanager
def _answers(
    session: Any, batch: Batch, subscriptions: Sequence[Subscription], question: Question
) -> Iterator[DataFrame]:
    """Relations and counts as a DataFrame, until the events are let go of."""
    good, derived = checked_question(subscriptions, batch.topics, question=question)
    job = make_job(good, batch.topics, derived, attributes=())
    count = task_count(session, job)
    if isinstance(count, str):  # the tasks do not see what this process sees
        frames = {name: session.createDataFrame(_table(batch, name)) for name in batch.topics}
        yield ask(frames, subscriptions, attributes=(), question=question).answers("jvm")
        return
    with TemporaryDirectory(prefix="concordant-") as name:
        folder = Path(name)
        write_shares(in_order(batch), job, folder, count)
        yield answers_of(session, count, job, partial(share, folder))


def _counters(
    counts: Mapping[str, int], subscriptions: Sequence[Subscription]
) -> dict[str, Counters]:
    """Tasks count dropped events together, and long searches by subscription."""
    found = {
        one.name: Counters(over_budget=counts.get(f"{OVER_BUDGET}{one.name}", 0))
        for one in subscriptions
    }
    next(iter(found.values())).capped = counts.get("capped", 0)
    return found


def _with_numbers(answers: Any) -> Any:
    """Answers with times as microseconds: those of Python end with the year 9999."""
    events = answers.schema.field("events").type.value_type
    fields = [f.with_type(pa.int64()) if f.name == "time" else f for f in events]
    for name, type_ in (("at", pa.int64()), ("events", pa.list_(pa.struct(fields)))):
        column = answers.column(name).cast(type_)
        answers = answers.set_column(answers.schema.get_field_index(name), name, column)
    return answers


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    """Where a relation stands in the order of delivery."""
    tie = row["tie"]
    return row["at"], tie["source"], tie["seq"], tie["rank"]


def _table(batch: Batch, topic: str) -> Any:
    """The events of one topic as a table of their own attributes."""
    mine = batch.take(np.flatnonzero(batch.topic == batch.topic_names.index(topic)))
    columns = {
        "source": array_of(mine.source),
        "seq": pa.array(mine.seq),
        "time": pa.array(mine.time),
    }
    if mine.ids is not None:
        columns["id"] = array_of(mine.ids)
    for name, kind in batch.topics[topic].attributes.items():
        columns[name] = array_of(mine.attributes[name, kind])
    return pa.table(columns)


def _relation(row: dict[str, Any]) -> Relation:
    key, ordinal = key_and_ordinal(row)
    tie = row["tie"]
    return Relation(
        row["subscription"],
        row["conjunction"],
        tuple(msgspec.json.decode(key)) if key else (),
        ordinal,
        row["position"],
        tuple(
            Event(one["topic"], one["source"], one["seq"], one["time"], {}, one["id"])
            for one in row["events"]
        ),
        OrderKey(row["at"], tie["source"], tie["seq"]),
    )
