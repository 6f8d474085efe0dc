"""Relations as lines, tables and files.

The line of a relation is the product's stable output: subscription, conjunction, key (only when
partitioned), position, events. A table has the identity and the completing event's key as well.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet

from concordant.errors import UsageError
from concordant.files.atomic import atomic_output
from concordant.model.kind import Value
from concordant.model.relation import Relation


def relation_line(relation: Relation) -> str:
    """One relation as one line of JSON."""
    line: dict[str, Any] = {
        "subscription": relation.subscription,
        "conjunction": relation.conjunction,
    }
    if relation.key:
        line["key"] = [_plain(value) for value in relation.key]
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


def _plain(value: Value) -> Value:
    """JSON has no infinity and no NaN, and null is a partition of its own: they become text."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _text(value: Value) -> str | None:
    shown = _plain(value)
    if shown is None or isinstance(shown, str):
        return shown
    return msgspec.json.encode(shown).decode()


@contextlib.contextmanager
def relations_output(
    path: Path, *, overwrite: bool = False
) -> Iterator[Callable[[Iterable[Relation]], None]]:
    """A function that writes relations to `path`, by its extension, whole or not at all.

    A path that cannot be written is refused when the block begins; the file appears, under its
    name, when the block ends without an error.
    """
    suffix = path.suffix.lower()
    if suffix not in _WRITERS:
        raise UsageError(
            f"relations cannot be written as '{suffix}'"
            if suffix
            else "the name has no extension to tell the format of relations",
            hint=f"name it {', '.join(_WRITERS)}",
            place=str(path),
        )
    if not path.parent.is_dir():
        raise UsageError(
            "its directory does not exist", hint=f"mkdir -p {path.parent}", place=str(path)
        )
    with atomic_output(path, overwrite=overwrite) as temporary:
        yield lambda relations: _WRITERS[suffix](relations, temporary)


def _write_lines(relations: Iterable[Relation], path: Path) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.writelines(relation_line(relation) + "\n" for relation in relations)


def _write_parquet(relations: Iterable[Relation], path: Path) -> None:
    pyarrow.parquet.write_table(relations_table(relations), path)


def _write_arrow(relations: Iterable[Relation], path: Path) -> None:
    table = relations_table(relations)
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


_WRITERS: dict[str, Callable[[Iterable[Relation], Path], None]] = {
    ".jsonl": _write_lines,
    ".ndjson": _write_lines,
    ".parquet": _write_parquet,
    ".arrow": _write_arrow,
    ".feather": _write_arrow,
}
