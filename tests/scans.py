"""Files that workers read themselves, without Spark: a case as CSV or Parquet, read by some tasks.

It writes what a case has into files (a topic each, or all in one), lets every task read them as
workers do, and gives the relations back in their order.
"""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from concordant.model.kind import format_instant
from concordant.spark import csv
from concordant.spark.job import Job
from concordant.spark.readable import Files
from concordant.spark.scan import rows_of
from concordant.spark.step import Bucket, in_total_order
from concordant.spark.unchanged import looked_at
from tests.buckets import Summary, job_of, summaries
from tests.generators import Case
from tests.spark.frames import tables

TASK_COUNT_MAX = 3

_TYPES = {
    pa.bool_(): "boolean",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "string",
    pa.timestamp("us", "UTC"): "instant",
}


def file_summaries(case: Case, rng: Random, folder: Path) -> tuple[list[Summary], str]:
    """What the tasks deliver together, and the form of the files."""
    job = job_of(case)
    form, inputs = written(case, job, rng, folder)
    task_count = rng.randint(1, TASK_COUNT_MAX)
    answers = []
    for number in range(task_count):
        answers.append(Bucket(job).take(in_total_order(rows_of(inputs, number, task_count, job))))
    return summaries(pa.concat_tables(answers)), form


def written(case: Case, job: Job, rng: Random, folder: Path) -> tuple[str, list[Files]]:
    """The events of a case in files, in any order; as CSV where that has them all."""
    found = {topic: _shuffled(table, rng) for topic, table in tables(case).items()}
    if rng.random() < 0.5 and _one_kind_each(found):
        found = {"": _with_topics(found)}
    form = "CSV" if rng.random() < 0.7 and _fits(found) else "Parquet"
    inputs = []
    for topic, table in found.items():
        roles = [(name, name) for name in ("source", "seq", "time")]
        if not topic:
            roles.insert(0, ("topic", "topic"))
        known = {(name, kind) for name, kind in job.columns if name in table.column_names}
        if topic:
            kinds = next(one.attributes for one in case.topics if one.name == topic)
            known = {(name, kind) for name, kind in known if kinds.get(name) is kind}
        path = folder / f"{topic or 'all'}.{form}"
        shape = topic or "all", topic or None, tuple(roles), tuple(sorted(known))
        inputs.append(_csv(table, path, shape) if form == "CSV" else _parquet(table, path, shape))
    return form, inputs


def _shuffled(table: Any, rng: Random) -> Any:
    order = list(range(table.num_rows))
    rng.shuffle(order)
    return table.take(pa.array(order, pa.int64()))


def _one_kind_each(found: dict[str, Any]) -> bool:
    """Has every column the same type in all tables?"""
    fields = {field for table in found.values() for field in table.schema}
    return len(fields) == len({field.name for field in fields})


def _with_topics(found: dict[str, Any]) -> Any:
    """The tables of topics as one."""
    parts = [
        table.append_column("topic", pa.array([topic] * table.num_rows, pa.string()))
        for topic, table in found.items()
    ]
    return pa.concat_tables(parts, promote_options="default")


def _fits(found: dict[str, Any]) -> bool:
    """Would CSV give back what is in tables? It has no empty texts, and no columns of nulls."""
    return not any(
        kind == pa.null() or (kind == pa.string() and "" in table.column(name).to_pylist())
        for table in found.values()
        for name, kind in zip(table.column_names, table.schema.types, strict=True)
    )


def _csv(table: Any, path: Path, shape: Any) -> Files:
    rows = zip(*(map(_cell, column) for column in table.columns), strict=True)
    path.write_text("".join(",".join(row) + "\n" for row in rows), encoding="utf-8")
    layout = csv.Layout(
        tuple(table.column_names), tuple(_TYPES[kind] for kind in table.schema.types)
    )
    files = Files(*shape, layout, (looked_at(str(path)),))
    assert not csv.unfit(files.files[0], layout, files.columns)
    return files


def _cell(value: Any) -> str:
    """A value as Spark reads it from CSV."""
    plain = value.as_py()
    if plain is None:
        return ""
    if isinstance(plain, bool):
        return str(plain).lower()
    if isinstance(plain, float) and not math.isfinite(plain):
        return "NaN" if math.isnan(plain) else "Infinity" if plain > 0 else "-Infinity"
    if pa.types.is_timestamp(value.type):
        return format_instant(value.cast(pa.int64()).as_py())
    return str(plain)


def _parquet(table: Any, path: Path, shape: Any) -> Files:
    untyped = [name for name in table.column_names if table.schema.field(name).type == pa.null()]
    pq.write_table(table.drop_columns(untyped), path)
    return Files(*shape, files=(looked_at(str(path)),))
