"""A batch of events that was read here, correlated on Spark: for `concordant correlate`.

The events were read and checked by `files`, so that ids, kinds and refusals are those of the local
engine; Spark spreads the matching. Input that does not fit into the memory of this process belongs
into a pipeline or a DataFrame of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType

from concordant.correlate.columns import Batch, Column
from concordant.files.subscriptions import Question
from concordant.files.write import array_of
from concordant.model.event import Event, OrderKey
from concordant.model.kind import Kind
from concordant.model.relation import Relation
from concordant.model.subscription import Subscription
from concordant.spark.correlate import ask
from concordant.spark.relations import key_and_ordinal
from concordant.spark.scan import Scan, answers_of, spooled


def correlate_on(
    session: Any, batch: Batch, subscriptions: Sequence[Subscription], *, question: Question = ""
) -> list[Relation]:
    """The relations of a batch, in order; a slip is told in the words of the local engine."""
    with relations_on(session, batch, subscriptions, question=question) as found:
        by_slot = not isinstance(found.schema[-1].dataType, ArrayType)
        slots = found.columns[found.columns.index("tie") + 1 :] if by_slot else []
        rows = found.toArrow().to_pylist()
    return [_relation(row, slots) for row in sorted(rows, key=_place)]


@contextmanager
def relations_on(
    session: Any, batch: Batch, subscriptions: Sequence[Subscription], *, question: Question = ""
) -> Iterator[DataFrame]:
    """The same as a DataFrame like that of `correlate`, until the events are let go of."""
    tables = {name: _table(batch, name) for name in batch.topics}
    schemas = {
        name: session.createDataFrame([], from_arrow_schema(_plain(table.slice(0, 0)).schema))
        for name, table in tables.items()
    }
    asked = ask(schemas, subscriptions, question=question).relations_only()
    with TemporaryDirectory(prefix="concordant-") as folder:
        scan = spooled(asked.inputs, list(tables.values()), folder, asked.job)
        if isinstance(scan, Scan):
            yield answers_of(scan, asked.job)
        else:
            frames = {name: session.createDataFrame(_plain(one)) for name, one in tables.items()}
            asked = ask(frames, subscriptions, question=question).relations_only()
            yield asked.answers("jvm")


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    """Where a relation stands in the order of delivery."""
    tie = row["tie"]
    return row["at"], tie["source"], tie["seq"], tie["rank"]


def _table(batch: Batch, topic: str) -> Any:
    """The events of one topic as a table of their own attributes, texts as codes."""
    mine = batch.take(np.flatnonzero(batch.topic == batch.topic_names.index(topic)))
    columns = {
        "source": _coded(mine.source),
        "seq": pa.array(mine.seq),
        "time": pa.array(mine.time),
    }
    if mine.ids is not None:
        columns["id"] = array_of(mine.ids)
    for name, kind in batch.topics[topic].attributes.items():
        columns[name] = _coded(mine.attributes[name, kind])
    return pa.table(columns)


def _coded(column: Column) -> Any:
    if column.kind is not Kind.STRING:
        return array_of(column)
    mask = None if column.valid is None else ~column.valid
    codes = pa.array(column.values, pa.int32(), mask=mask)
    return pa.DictionaryArray.from_arrays(codes, pa.array(column.dictionary, pa.string()))


def _plain(table: Any) -> Any:
    """The same table with its texts written out."""
    for index, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(index, field.name, table.column(index).cast(pa.string()))
    return table


def _relation(row: dict[str, Any], slots: Sequence[str]) -> Relation:
    events = [row[slot] for slot in slots if row[slot] is not None] if slots else row["events"]
    key, ordinal = key_and_ordinal(row)
    tie = row["tie"]
    return Relation(
        row["subscription"],
        row["conjunction"],
        tuple(msgspec.json.decode(key)) if key else (),
        ordinal,
        row["position"],
        tuple(
            Event(one["topic"], one["source"], one["seq"], _micros(one["time"]), {}, one["id"])
            for one in events
        ),
        OrderKey(_micros(row["at"]), tie["source"], tie["seq"]),
    )


def _micros(moment: Any) -> int:
    found: int = pa.scalar(moment, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
    return found
