"""A batch laid down for tasks: every row is in the share of one task, and means what it meant."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.compute as pc
import pytest

from concordant.correlate.columns import Batch
from concordant.language import parse
from concordant.language.check import check
from concordant.model.event import Event
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark import spool
from concordant.spark.job import Job, make_job
from concordant.spark.rows import SET, batch_of
from concordant.spark.spool import share, write_shares

TOPICS = {
    "A": Topic("A", {"k": Kind.STRING, "n": Kind.INT, "at": Kind.TIME}),
    "B": Topic("B", {"k": Kind.STRING, "n": Kind.FLOAT, "ok": Kind.BOOL}),
    "C": Topic("C", {"k": Kind.STRING}),
}
QUESTION = """\
one: A and B partition by k
two: A[1] and A[2] partition by n, source
three: A[1].at < A[2].at
four: B[1].ok = B[2].ok
"""


def events(*, ids: bool) -> list[Event]:
    rng = Random(7)
    found = []
    for number in range(300):
        values: dict[str, Any] = {"k": rng.choice(["x", "", "ä", *map(str, range(20)), None])}
        name = rng.choice("ABC")
        if name == "A":
            values |= {"n": rng.choice([*range(20), -(2**62), None]), "at": rng.randrange(9)}
        elif name == "B":
            values |= {"n": rng.choice([0.5, None]), "ok": rng.choice([True, False, None])}
        values = {key: value for key, value in values.items() if value is not None}
        id = rng.choice([f"given {number}", "", f"s{number % 3}:{number}"]) if ids else ""
        found.append(Event(name, f"s{number % 3}", number, number, values, id))
    return found


def shares(folder: Path, job: Job, index: int, task_count: int) -> list[list[Event]]:
    """What each task finds for one set, in the order in which it finds it."""
    found: list[list[Event]] = []
    for number in range(task_count):
        tables = [
            one.filter(pc.equal(one.column(SET), index)) for one in share(folder, number, job)
        ]
        found.append([event for one in tables for event in batch_of(job, one)[0].events()])
    return found


def as_it_travels(job: Job, event: Event) -> Event:
    """An event with those of its attributes that somebody reads."""
    known = {topic.name: topic.attributes for topic in job.topics}[event.topic]
    values = {name: value for name, value in event.attributes.items() if name in known}
    return Event(event.topic, event.source, event.seq, event.time, values, event.id)


@pytest.mark.parametrize("dictionary_max", [100, 2], ids=["codes", "texts"])
@pytest.mark.parametrize("ids", [True, False], ids=["given ids", "own ids"])
@pytest.mark.parametrize("task_count", [1, 2, 5])
def test_each_set_has_every_event_that_it_reads_in_one_task_and_in_order(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    task_count: int,
    ids: bool,
    dictionary_max: int,
) -> None:
    monkeypatch.setattr(spool, "DICTIONARY_MAX", dictionary_max)
    monkeypatch.setattr(spool, "CHUNK", 64)
    job = make_job(check(parse(QUESTION), TOPICS), TOPICS, {})
    assert [one.key for one in job.sets] == [("k",), ("n", "source"), (), ()]
    given = events(ids=ids)
    write_shares(Batch.of(given, TOPICS.values()), job, tmp_path, task_count)
    for index, one in enumerate(job.sets):
        found = shares(tmp_path, job, index, task_count)
        expected = [as_it_travels(job, event) for event in given if event.topic in one.topics]
        assert sorted(chain.from_iterable(found), key=lambda event: event.seq) == expected
        for task in found:
            assert [event.seq for event in task] == sorted(event.seq for event in task)
        keys = [{tuple(event.read(name) for name in one.key) for event in task} for task in found]
        assert sum(map(len, keys)) == len(set().union(*keys)), "a partition is in two tasks"
        assert not one.key or sum(map(bool, keys)) == task_count, "a task has nothing to do"


def test_what_nobody_reads_is_not_written(tmp_path: Path) -> None:
    job = make_job(check(parse("A and A partition by k"), TOPICS), TOPICS, {})
    write_shares(Batch.of(events(ids=False), TOPICS.values()), job, tmp_path, 1)
    (table,) = share(tmp_path, 0, job)
    assert table.column_names == ["set", "topic", "source", "seq", "time", "id", "string:k"]
    assert table.num_rows == sum(event.topic == "A" for event in events(ids=False))
    assert table.column("id").null_count == table.num_rows
