"""Rows that share their places, shuffled, cut, filtered and spread, and which of them are kept.

What should come out is worked out slowly, by the words of the rules alone; what comes out, by the
core on Spark without Spark, in each of the ways that rows go.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from concordant.correlate.columns import Batch
from concordant.correlate.kernel import Kernel
from concordant.language import parse
from concordant.language.check import check
from concordant.model.event import Event
from concordant.model.kind import INT_MAX, Kind, Value
from concordant.model.topic import Topic
from concordant.spark import pieces as pieces_module
from concordant.spark import step as step_module
from concordant.spark.job import Job, make_job
from concordant.spark.pieces import merged
from concordant.spark.rows import row_schema
from concordant.spark.step import Bucket, in_total_order, step
from concordant.spark.ties import in_chunks
from tests.buckets import pieces, pieces_of

Row = dict[str, Any]

TOPICS = {
    "A": Topic("A", {"k": Kind.INT, "s": Kind.STRING, "x": Kind.FLOAT}),
    "B": Topic("B", {"k": Kind.INT, "s": Kind.STRING, "f": Kind.BOOL}),
}
QUESTION = """
one: A.x > 0.5 and A.x < 3.0 and A then B consume matched partition by k
two: A.x < 2.0 and B.s = "x" consume matched partition by s
three: B[1].s <= B[2].s match first contiguous consume matched
"""
WANTED: tuple[tuple[str, Callable[[Row], bool]], ...] = (
    ("k", lambda row: row["topic"] == "B" or (more(row["x"], 0.5) and more(3.0, row["x"]))),
    ("s", lambda row: more(2.0, row["x"]) if row["topic"] == "A" else row["s"] == "x"),
    ("", lambda row: row["topic"] == "B"),
)
"""By set: its key, and which rows one of its slots would take."""


def more(left: float | None, right: float | None) -> bool:
    return left is not None and right is not None and left > right


def job_of(question: str = QUESTION, **options: Any) -> Job:
    wanted = check(parse(question), TOPICS)
    return make_job(wanted, TOPICS, {}, attributes="*", skip_bad=True, **options)


VALUES: dict[str, list[Value]] = {
    "id": [None, None, "g"],
    "k": [0, 1, None],
    "s": ["x", "y", None],
    "x": [-0.0, 0.0, 1.0, 4.0, math.nan, None],
    "f": [True, False, None],
}


def rows_at_random(rng: Random, count: int) -> list[Row]:
    """Rows of which many share a place, some with a copy, some with one that hardly differs."""
    found: list[Row] = []
    while len(found) < count:
        topic = rng.choice("AB")
        row: Row = {"topic": topic, "source": rng.choice("pq")}
        row |= {"seq": rng.randrange(2), "time": rng.randrange(6)}
        row |= {name: rng.choice(values) for name, values in VALUES.items()}
        row["f" if topic == "A" else "x"] = None
        found.append(row)
        if rng.random() < 0.2:
            found.append(row)
        if rng.random() < 0.4:
            name = rng.choice("ksx" if topic == "A" else "ksf")
            found.append({**row, name: rng.choice(VALUES[name])})
    return found


def bad_rows(rng: Random) -> list[Row]:
    """Rows that are no events; every set would get some."""
    row = rows_at_random(rng, 1)[0]
    a, b = {**row, "topic": "A"}, {**row, "topic": "B", "x": None}
    return [
        {**row, "topic": None},
        {**a, "time": None},
        {**b, "seq": None},
        {**b, "source": None, "seq": 77},
        {**a, "k": -(2**63), "seq": 78},
    ]


def table_of(job: Job, rows: list[tuple[int, Row]]) -> Any:
    names = [topic.name for topic in job.topics]
    found = []
    for index, row in rows:
        one = {name: row[name] for name in ("source", "seq", "time", "id")}
        one |= {"set": index, "topic": None if row["topic"] is None else names.index(row["topic"])}
        one |= {f"{kind}:{name}": row[name] for name, kind in job.columns}
        found.append(one)
    return pa.Table.from_pylist(found, row_schema(job))


def sent(job: Job, rows: list[Row], rng: Random) -> list[tuple[int, Row]]:
    """Rows with the sets that they go to; some that a set cannot use are filtered, by chance."""
    found = []
    for index, one in enumerate(job.sets):
        for row in rows:
            if row["topic"] is not None and row["topic"] not in one.topics:
                continue
            if is_event(row) and not WANTED[index][1](row) and rng.random() < 0.5:
                continue
            found.append((index, row))
    return found


# --- what should come out -------------------------------------------------------------------------


def is_event(row: Row) -> bool:
    return None not in (row["topic"], row["time"], row["source"], row["seq"]) and row["k"] != -(
        2**63
    )


def content(row: Row, read: set[str]) -> tuple[Any, ...]:
    def value(name: str) -> tuple[Any, ...]:
        found = row[name]
        if found is None or isinstance(found, str):
            return (found is not None, found or "")
        number = found == found
        return (True, number, found if number else 0, math.copysign(1, found) if number else 0)

    names = sorted("fksx", key=lambda name: (name not in read, name))
    own = f"{row['source']}:{row['seq']}"
    return (row["time"], row["topic"], *map(value, names), row["id"] or own)


def place(job: Job, row: Row) -> tuple[Any, ...]:
    return (row["time"], row["source"], row["seq"]) if job.time_ordered else (row["seq"],)


def partition(job: Job, row: Row, key: str) -> str:
    return repr((place(job, row), row[key] if key else None))


READ = ({"x", "k"}, {"x", "s"}, {"s"})
"""By set: the attributes that its subscriptions read."""


def expected(job: Job, rows: list[Row]) -> tuple[list[str], Counter[str]]:
    """The relations and what is told, by a slow reading of the rules."""
    relations: list[str] = []
    told: Counter[str] = Counter(telling("bad", row) for row in rows if not is_event(row))
    events = [row for row in rows if is_event(row)]
    for index, (key, wants) in enumerate(WANTED):
        used = [row for row in events if row["topic"] in job.sets[index].topics and wants(row)]
        used.sort(key=lambda row: (partition(job, row, key), content(row, READ[index])))
        kept = []
        for _, group in groupby([(partition(job, row, key), row) for row in used], itemgetter(0)):
            first, *others = [row for _, row in group]
            kept.append(first)
            for before, row in zip([first, *others], others, strict=False):
                is_copy = content(row, READ[index]) == content(before, READ[index])
                if not (is_copy and any(earlier(row) for _, earlier in WANTED[:index])):
                    told[telling("repeated", row)] += 1
        kept.sort(key=lambda row: (place(job, row), content(row, READ[index])))
        batch = Batch.of(map(event_of, kept), TOPICS.values())
        kernel = Kernel(job.plans[index], time_ordered=job.time_ordered)
        for found in kernel.step(batch):
            shown = [shown_of(e.topic, e.source, e.seq, e.id, e.attributes) for e in found.events]
            relations.append(repr((found.id, found.position, shown)))
    return sorted(relations), told


def event_of(row: Row) -> Event:
    values = {name: row[name] for name in "ksxf" if row[name] is not None}
    return Event(row["topic"], row["source"], row["seq"], row["time"], values, row["id"] or "")


def telling(what: str, row: Row) -> str:
    shown = [row.get(name) for name in "ksxf"] if what == "repeated" else []
    return repr((what, row["topic"], row["source"], row["seq"], row["time"], *shown))


def shown_of(*parts: Any) -> Any:
    *head, values = parts
    return head, [values.get(name) for name in "ksxf"]


def got(tables: list[Any]) -> tuple[list[str], Counter[str]]:
    relations, told = [], Counter[str]()
    for row in pa.concat_tables(tables).to_pylist():
        events = row["events"] or []
        if row["what"] == "counts":
            continue
        if row["what"] is None:
            shown = [shown_of(e["topic"], e["source"], e["seq"], e["id"], e) for e in events]
            relations.append(repr((row["id"], row["position"], shown)))
        else:
            (event,) = events
            time = event["time"]
            if time is not None:
                time = pa.scalar(time, pa.timestamp("us", "UTC")).cast(pa.int64()).as_py()
            told[telling(row["what"], {**event, "time": time})] += 1
    return sorted(relations), told


# --- ways of rows ---------------------------------------------------------------------------------


def make_small(patch: pytest.MonkeyPatch) -> None:
    """A few rows are several groups, pieces and chunks."""
    patch.setattr(pieces_module, "GROUP", 40)
    patch.setattr(pieces_module, "PIECE", 3)
    patch.setattr(pieces_module, "MERGED_BYTES", 1)
    patch.setattr(step_module, "CHUNK", 5)


def by_table(job: Job, rows: list[Row], rng: Random) -> list[Any]:
    travelling = sent(job, rows, rng)
    rng.shuffle(travelling)
    tables = []
    spread = pieces_of(job, table_of(job, travelling), rng, places=rng.choice((1, 3)))
    for one in spread.values():
        whole = Bucket(job)
        tables += [whole.take(part) for part in merged(one.combine_chunks().to_batches(), job)]
    return tables


def by_scan(job: Job, rows: list[Row], rng: Random) -> list[Any]:
    travelling = sent(job, rows, rng)
    rng.shuffle(travelling)
    whole = Bucket(job)
    table = in_total_order(table_of(job, travelling))
    return [whole.take(one) for one in in_chunks(table, rng.choice((1, 4, 1_000)))]


def by_stream(job: Job, rows: list[Row], rng: Random) -> list[Any]:
    """Nothing is late, because all of a time comes before it is released."""
    travelling = sent(job, rows, rng)
    travelling.sort(key=lambda one: (one[1]["time"] or 0, rng.random()))
    state, tables = None, []
    for cut in pieces(rng, len(travelling)):
        following = [row["time"] for _, row in travelling[cut.stop :] if row["time"] is not None]
        until_us = min(following, default=INT_MAX)
        state, answers = step(job, state, table_of(job, travelling[cut]), until_us=until_us)
        tables.append(answers)
    return tables


def by_log(job: Job, rows: list[Row], rng: Random) -> list[Any]:
    """No number comes again in a later micro-batch."""
    travelling = sent(job, rows, rng)
    travelling.sort(key=lambda one: (one[1]["seq"] or 0, rng.random()))
    numbers = [row["seq"] or 0 for _, row in travelling]
    state, tables, start = None, [], 0
    for cut in pieces(rng, len(travelling)):
        stop = bisect_right(numbers, numbers[cut.stop - 1])
        table = table_of(job, rng.sample(travelling[start:stop], stop - start))
        state, answers = step(job, state, table)
        tables.append(answers)
        start = stop
    return tables


Way = Callable[[Job, list[Row], Random], list[Any]]
WAYS: tuple[Way, ...] = (by_table, by_scan, by_stream, by_log)


def tried(seed: int, way: Way = by_table) -> tuple[Job, list[Row], list[str], Counter[str]]:
    """A question, rows, and what should come of them."""
    rng = Random(f"rows {seed}")
    rows = rows_at_random(rng, 60) + bad_rows(rng)
    job = job_of(time_ordered=way is not by_log)
    if way is by_log:
        rows = [*map(of_log, rows)]
    return job, rows, *expected(job, rows)


def of_log(row: Row) -> Row:
    """The row in a log of one source, where rows of one number may have other times."""
    changed = dict(row)
    if is_event(row):
        changed |= {"seq": row["time"] * 2 + row["seq"], "time": "pq".index(row["source"])}
    return changed | {"source": row["source"] and "p"}
