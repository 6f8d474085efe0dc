"""Cases as DataFrames, and relations of a DataFrame as the kernel's summaries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from concordant.model.event import Event
from concordant.model.kind import Kind
from tests.buckets import Summary, order_of
from tests.generators import Case

TYPES = {
    Kind.BOOL: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.TIME: pa.timestamp("us", "UTC"),
    Kind.NULL: pa.null(),
}


def tables(case: Case, events: tuple[Event, ...] | None = None) -> dict[str, pa.Table]:
    """A table per topic, its time an integer."""
    found = {}
    for topic in case.topics:
        kinds = topic.attributes
        fields = [("source", pa.string()), ("seq", pa.int64()), ("time", pa.int64())]
        schema = pa.schema([*fields, *((name, TYPES[kind]) for name, kind in kinds.items())])
        rows = []
        for event in case.events if events is None else events:
            if event.topic == topic.name:
                row = {"source": event.source, "seq": event.seq, "time": event.time}
                rows.append(row | {name: event.attributes.get(name) for name in kinds})
        found[topic.name] = pa.Table.from_pylist(rows, schema)
    return found


def frames(spark: Any, case: Case) -> dict[str, Any]:
    """A DataFrame per topic; Spark Connect cannot tell the schema of an empty table."""
    return {
        name: spark.createDataFrame(table, from_arrow_schema(table.schema))
        for name, table in tables(case).items()
    }


def collected(found: Any) -> list[Summary]:
    """Relations in their order; their events come from slot columns, or from the array.

    Sorted here: a sort on Spark runs the job twice. `in_order` has a test of its own.
    """
    table = found.toArrow()
    own = {"subscription", "conjunction", "key", "position", "id", "at", "tie", "events"}
    slots = [name for name in table.column_names if name not in own]
    summaries = []
    for row in sorted(table.to_pylist(), key=order_of):
        events = row["events"] if "events" in row else [row[slot] for slot in slots if row[slot]]
        at = pa.scalar(row["at"], pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
        ids = tuple(event["id"] for event in events)
        tie = row["tie"]
        summaries.append((row["id"], row["position"], at, tie["source"], tie["seq"], ids))
    return summaries
