"""Texts that a worker reads itself travel as codes, and mean what they meant as texts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from concordant.language import parse
from concordant.language.check import check
from concordant.model.kind import Kind
from concordant.model.topic import Topic
from concordant.spark import scan
from concordant.spark.job import make_job
from concordant.spark.readable import Files
from concordant.spark.scan import rows_of
from concordant.spark.step import in_total_order
from concordant.spark.unchanged import Unchanged

TOPICS = {"T": Topic("T", {"k": Kind.STRING})}
JOB = make_job(check(parse("T[1].k != T[2].k partition by k"), TOPICS), TOPICS, {})
KEYS = ["x", "y", None, "x", "z", "y"]
SOURCES = ["a", "", "b", "a", None, "b"]


def coded(texts: list[str | None], known: list[str | None]) -> Any:
    """Texts by a dictionary that may hold a text twice, or null."""
    codes = pa.array([None if one is None else known.index(one) for one in texts], pa.int32())
    return pa.DictionaryArray.from_arrays(codes, pa.array(known, pa.string()))


def rows(
    patch: pytest.MonkeyPatch, keys: Any, sources: Any, task_count: int = 2
) -> list[dict[str, Any]]:
    """What the tasks take from a file, in the order of their times; each row is somebody's."""
    table = pa.table({"k": keys, "source": sources, "seq": range(6), "time": [5, 4, 3, 3, 1, 0]})
    # Arrow's writer of Parquet makes no such dictionaries, but files come from anywhere.
    patch.setattr(scan, "_parquet", lambda file, columns, ids: [table.select(columns)])
    roles = (("source", "source"), ("seq", "seq"), ("time", "time"))
    files = Files("file", "T", roles, (("k", Kind.STRING),), files=(Unchanged("a file", 1, 1),))
    found = [in_total_order(rows_of([files], n, task_count, JOB)) for n in range(task_count)]
    owners = [{row["string:k"] for row in one.to_pylist()} for one in found]
    assert not owners[0] & owners[-1] or task_count == 1
    return sorted((row for one in found for row in one.to_pylist()), key=lambda row: row["seq"])


@pytest.mark.parametrize("dictionary_max", [100, 1], ids=["codes", "texts"])
@pytest.mark.parametrize(
    "known", [["z", "y", "x"], ["x", "x", "y", "z"], [None, "x", "y", "z"]], ids=str
)
def test_however_texts_are_stored_they_are_the_same_rows(
    monkeypatch: pytest.MonkeyPatch, known: list[str | None], dictionary_max: int
) -> None:
    monkeypatch.setattr(scan, "DICTIONARY_MAX", dictionary_max)
    found = rows(monkeypatch, coded(KEYS, known), coded(SOURCES, ["", "a", "b"]))
    assert found == rows(monkeypatch, KEYS, SOURCES)
    assert [row["string:k"] for row in found] == KEYS
    assert [row["source"] for row in found] == ["a", None, "b", "a", None, "b"]


def test_events_of_one_instant_are_ordered_by_source_though_sources_are_codes() -> None:
    sources = coded(["a", "a", "b", "a", "a", "a"], ["b", "a"])
    table = pa.table({"k": KEYS, "source": sources, "seq": range(6), "time": [5, 4, 3, 3, 1, 0]})
    assert in_total_order(table).column("seq").to_pylist() == [5, 4, 3, 2, 1, 0]
