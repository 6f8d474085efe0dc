"""Relations as lines, tables and files.

The line of a relation is the product's stable output: subscription, conjunction, key (only when
partitioned), position, events. A table has the identity and the completing event's key as well.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet

from concordant.errors import UsageError
from concordant.files.atomic import atomic_output
from concordant.model.relation import Relation


def relation_line(relation: Relation) -> str:
    """One relation as one line of JSON."""
    line: dict[str, Any] = {
        "subscription": relation.subscription,
        "conjunction": relation.conjunction,
    }
    if relation.key:
        line["key"] = relation.key
    line["position"] = relation.position
    line["events"] = relation.event_ids
    return msgspec.json.encode(line).decode()


def relations_table(relations: Iterable[Relation]) -> Any:
    """Relations as an Arrow table, in order."""
    rows = list(relations)
    instant = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "subscription": pa.array([row.subscription for row in rows], pa.string()),
            "conjunction": pa.array([row.conjunction for row in rows], pa.int32()),
            "key": pa.array(
                [[_text(value) for value in row.key] for row in rows], pa.list_(pa.string())
            ),
            "position": pa.array([row.position for row in rows], pa.int64()),
            "id": pa.array([row.id for row in rows], pa.string()),
            "at": pa.array([row.at.time for row in rows], instant),
            "events": pa.array([list(row.event_ids) for row in rows], pa.list_(pa.string())),
        }
    )


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()


def write_relations(relations: Iterable[Relation], path: Path, *, overwrite: bool = False) -> None:
    """Write relations by the path's extension, whole or not at all."""
    with atomic_output(path, overwrite=overwrite) as temporary:
        suffix = path.suffix.lower()
        if suffix in (".jsonl", ".ndjson", ".json"):
            with temporary.open("w", encoding="utf-8") as stream:
                stream.writelines(relation_line(relation) + "\n" for relation in relations)
        elif suffix == ".parquet":
            pyarrow.parquet.write_table(relations_table(relations), temporary)
        elif suffix in (".arrow", ".feather"):
            pyarrow.feather.write_feather(relations_table(relations), str(temporary))
        else:
            raise UsageError(
                f"relations cannot be written as {suffix or 'a file without an extension'}",
                hint="name it .jsonl, .parquet or .arrow",
                place=str(path),
            )
