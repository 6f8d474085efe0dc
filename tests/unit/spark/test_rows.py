"""Ids of travelling rows: `source:seq` is the same text however it is made, and need not travel."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from concordant.correlate.columns import Column
from concordant.model.kind import Kind
from concordant.spark.rows import own_ids, without_own_ids


@pytest.mark.parametrize(
    "sources",
    [["a", "a", "a"], ["ä", "ä", "ä"], ["a", "b", "a"], ["a", None, "a"], ["a:1", "a:1", "a"]],
    ids=str,
)
def test_an_own_id_is_the_source_and_the_number(sources: list[str | None]) -> None:
    found = own_ids(Column.of(Kind.STRING, sources), pa.array([7, -1, 2**63 - 1]))
    expected = [
        None if source is None else f"{source}:{seq}"
        for source, seq in zip(sources, (7, -1, 2**63 - 1), strict=True)
    ]
    assert found.to_pylist() == expected


@pytest.mark.parametrize("source", ["a", "ä"])
@pytest.mark.parametrize(
    ("ids", "kept"),
    [
        (["{}:1", "{}:2", "{}:3"], [None, None, None]),
        (["{}:1", "given", "{}:3"], [None, "given", None]),
        (["{}:1", "{}:3", "{}:2"], [None, "{}:3", "{}:2"]),
        (["given", "{}:2", "{}:3"], ["given", "{}:2", "{}:3"]),
    ],
    ids=str,
)
def test_only_ids_that_say_something_travel(
    source: str, ids: list[str], kept: list[str | None]
) -> None:
    def named(texts: Any) -> list[str | None]:
        return [None if text is None else text.format(source) for text in texts]

    columns = {"source": [source] * 3, "seq": [1, 2, 3], "id": named(ids)}
    assert without_own_ids(pa.table(columns)).column("id").to_pylist() == named(kept)
