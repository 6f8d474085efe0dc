"""Travelling rows: ids that are `source:seq` anyway need not travel; what is surely a time."""

from __future__ import annotations

import re
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from concordant.correlate.columns import Column
from concordant.errors import UsageError
from concordant.files.times import instant_of_text
from concordant.model.kind import Kind
from concordant.spark.normalise import SURELY_A_TIME
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


def test_what_is_surely_a_time_is_one() -> None:
    rng, found = Random(3), [0, 0]
    for _ in range(20_000):
        year, month, day = (
            rng.choice([0, 1, 1970, 2024, 9999]),
            rng.randrange(14),
            rng.randrange(33),
        )
        time = [f"{rng.choice([0, 1, 23, 24]):02}", f"{rng.choice([0, 59, 60]):02}"]
        time += rng.choice([[], ["00"], ["59"], ["60"], ["01.5"], ["01.000001"], ["01.0000010"]])
        zone = rng.choice(["", "", "Z", "+01:00", "-23:59", "+24:00", "+0100"])
        text = f"{year:04}-{month:02}-{day:02}{rng.choice('T T_')}{':'.join(time)}{zone}"
        text = rng.choice([text] * 9 + [str(rng.choice([-1, 10**17, 10**18, 10**19]))])
        surely = re.search(SURELY_A_TIME, text) is not None
        found[surely] += 1
        try:
            instant_of_text(text)
        except UsageError:
            assert not surely, text
    assert min(found) > 500
