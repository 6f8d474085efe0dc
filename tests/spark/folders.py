"""Folders of files with events, and readers of Spark for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = "topic string, source string, seq bigint, time bigint"


def event_rows(first: int, last: int, **more: Any) -> Any:
    """As many events of A and B in turn, and columns beside those that make them events."""
    numbers = range(first, last)
    own = {"source": ["x" for _ in numbers], "seq": list(numbers), "time": list(numbers)}
    return pa.table({"topic": ["AB"[n % 2] for n in numbers], **own, **more})


def folder_of_files(path: Path, form: str) -> Path:
    """Two files, and what Spark does not take for one of its own."""
    path.mkdir()
    for number in range(2):
        rows = event_rows(20 * number, 20 * number + 20)
        if form == "parquet":
            pq.write_table(rows, path / f"{number}.parquet")
        else:
            lines = [",".join(map(str, row.values())) for row in rows.to_pylist()]
            (path / f"{number}.csv").write_text("\n".join(lines))
        (path / f"_{number}.{form}").write_bytes((path / f"{number}.{form}").read_bytes())
    for name in (f"2.{form}", f".0.{form}", "_SUCCESS"):
        (path / name).write_bytes(b"")
    return path


def reader_of(spark: Any, form: str, *paths: Path | str, **options: Any) -> Any:
    reader = spark.read.format(form).schema(SCHEMA).options(**options)
    return reader.load([str(path) for path in paths])
