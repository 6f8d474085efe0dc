"""Columns that are chosen beforehand: the same values as when everything is made."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from concordant.errors import UsageError
from concordant.spark import correlate, in_order

SCHEMA = "topic string, source string, seq bigint, time bigint, k string, v double"
ONE = "A[1] and A[2] and B or A[1] and C partition by k"
TWO = f"one: {ONE}\ntwo: A[1].v < A[2].v partition by k"

CHOICES = {
    ONE: [
        ["key", "A_1.seq", "A_2.seq"],
        ["id"],
        ["A_1", "position"],
        ["B.id", "C.time", "tie", "at"],
        ["subscription", "conjunction", "A_2.k"],
    ],
    TWO: [["key", "events.seq"], ["id", "events"], ["position", "subscription"], ["tie"]],
}


def _events(spark: Any) -> Any:
    rng = Random(2)
    rows = [
        (rng.choice("ABC"), rng.choice("xy"), n, n // 2, rng.choice("pqr"), float(n % 11))
        for n in range(300)
    ]
    return spark.createDataFrame(rows, SCHEMA)


def _paths(schema: Any, chosen: list[str]) -> dict[str, Any]:
    """Of the whole result, what is chosen: columns, and fields of them in their order."""
    kept: dict[str, Any] = {}
    for field in schema.fields:
        inner = getattr(field.dataType, "elementType", field.dataType)
        if field.name in chosen:
            kept[field.name] = None
        elif any(name.startswith(f"{field.name}.") for name in chosen):
            kept[field.name] = [n for n in inner.names if f"{field.name}.{n}" in chosen]
    return kept


def _pruned(value: Any, fields: list[str] | None) -> Any:
    if fields is None or value is None:
        return value
    if isinstance(value, list):
        return [_pruned(one, fields) for one in value]
    return {name: value[name] for name in fields}


@pytest.mark.parametrize("question", CHOICES, ids=["one", "two"])
def test_what_is_chosen_is_what_it_would_have_been(spark: Any, question: str) -> None:
    events = _events(spark)
    whole = correlate(events, question)
    rows = whole.toArrow().to_pylist()
    assert len(rows) > 50
    for chosen in CHOICES[question]:
        kept = _paths(whole.schema, chosen)
        found = correlate(events, question, select=chosen)
        assert found.columns == list(kept)
        expected = [{n: _pruned(row[n], fields) for n, fields in kept.items()} for row in rows]
        assert sorted(map(str, found.toArrow().to_pylist())) == sorted(map(str, expected))


def test_relations_without_their_place_cannot_be_sorted(spark: Any) -> None:
    found = correlate(_events(spark), "A then B", select="id")
    assert found.columns == ["id"]
    with pytest.raises(UsageError, match="there is no 'at'"):
        in_order(found)


def test_a_column_that_is_not_there_is_refused_with_those_that_are(spark: Any) -> None:
    events = _events(spark)
    for chosen, hint in [("B.w", "one of B.id, B.topic, "), ("key.x", "one of subscription, ")]:
        with pytest.raises(UsageError, match=f"select has '{chosen}'") as raised:
            correlate(events, "A then B", select=["key", chosen])
        assert raised.value.hint.startswith(hint)


def test_fields_whose_names_have_dots_are_chosen_by_all_their_names_or_as_pairs(spark: Any) -> None:
    rows = [("A", "s", 1, 1, (7,)), ("A.b", "s", 2, 2, (8,))]
    frame = spark.createDataFrame(rows, f"{SCHEMA.partition(', k')[0]}, b struct<id: int>")
    question = "A.b.id = 7 and `A.b`.b.id = 8"
    assert _row(correlate(frame, question, select=["key", "A.b.b.id"])) == {
        "key": [],
        "A.b": {"b.id": 8},
    }
    with pytest.raises(UsageError, match=r"'A\.b\.id', which may mean 2") as raised:
        correlate(frame, question, select="A.b.id")
    assert raised.value.hint == "say which as a pair: ('A', 'b.id') or ('A.b', 'id')"
    assert _row(correlate(frame, question, select=[("A", "b.id")])) == {"A": {"b.id": 7}}
    assert _row(correlate(frame, question, select=[("A.b", "id")])) == {"A.b": {"id": "s:2"}}
    with pytest.raises(UsageError, match=r"select has 'A\.c'"):
        correlate(frame, question, select=[("A", "c")])


def _row(found: Any) -> dict[str, Any]:
    (row,) = found.collect()
    return dict(row.asDict(recursive=True))
