"""Events as columns and back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from concordant.correlate.columns import Batch, Column
from concordant.model.event import Event
from concordant.model.kind import Kind, Value
from concordant.model.topic import Topic
from tests.generators import Case, cases

TOPICS = (
    Topic("A", {"n": Kind.INT, "s": Kind.STRING, "x": Kind.FLOAT}),
    Topic("B", {"n": Kind.FLOAT, "s": Kind.STRING, "ok": Kind.BOOL, "when": Kind.TIME}),
)
EVENTS = (
    Event("A", "q", 1, 5, {"n": 2**63 - 1, "s": "x", "x": 0.5}),
    Event("B", "p", 7, 5, {"n": 1.5, "s": "x", "ok": False, "when": -1}, "given"),
    Event("A", "p", 2, 5, {"s": "é"}),
    Event("B", "q", 2, -3, {}),
)


def test_a_batch_gives_back_its_events() -> None:
    batch = Batch.of(EVENTS, TOPICS)
    assert len(batch) == len(EVENTS)
    assert tuple(batch.events()) == EVENTS
    assert batch.event(2) == EVENTS[2]


def test_a_given_id_is_kept_and_the_others_are_source_and_seq() -> None:
    batch = Batch.of(EVENTS, TOPICS)
    assert [batch.id(row) for row in range(4)] == ["q:1", "given", "p:2", "q:2"]
    assert Batch.of(EVENTS[:1], TOPICS).ids is None


def test_batches_one_under_the_other_keep_only_texts_in_use() -> None:
    whole = Batch.of(EVENTS, TOPICS)
    rows = [[1, 0], [3], [2], [1]]
    joined = Batch.concat([whole.take(np.array(some)) for some in rows])
    assert list(joined.events()) == [EVENTS[row] for some in rows for row in some]
    assert joined.ids is not None
    assert joined.ids.dictionary == ("given", "given")
    few = Batch.concat([whole.take(np.array([0])), whole.take(np.array([3]))])
    assert few.attributes["s", Kind.STRING].dictionary == ("x",)
    assert few.source.dictionary == ("q",)
    assert list(few.events()) == [EVENTS[0], EVENTS[3]]


def test_topics_share_a_column_only_if_name_and_kind_agree() -> None:
    columns = Batch.of(EVENTS, TOPICS).attributes
    assert sorted(columns) == [
        ("n", Kind.FLOAT),
        ("n", Kind.INT),
        ("ok", Kind.BOOL),
        ("s", Kind.STRING),
        ("when", Kind.TIME),
        ("x", Kind.FLOAT),
    ]
    assert columns["s", Kind.STRING].dictionary == ("x", "é")
    assert columns["n", Kind.INT].values.dtype == np.int64


def test_an_attribute_that_is_not_in_the_schema_is_left_out() -> None:
    batch = Batch.of([Event("A", "p", 1, 0, {"n": 1, "other": 2})], TOPICS)
    assert batch.event(0).attributes == {"n": 1}


def test_order_is_by_time_then_source_then_seq() -> None:
    batch = Batch.of(EVENTS, TOPICS)
    assert [batch.id(row) for row in batch.order()] == ["q:2", "p:2", "given", "q:1"]


def test_sources_are_ordered_by_code_points() -> None:
    sources = ["z", "é", "Z", "\U0001f600", "\ue000", ""]
    batch = Batch.of([Event("A", s, 1, 0) for s in sources], TOPICS)
    assert [sources[row] for row in batch.order()] == sorted(sources)


def test_taken_rows_come_in_the_order_asked_for() -> None:
    batch = Batch.of(EVENTS, TOPICS)
    assert tuple(batch.take(np.array([3, 1])).events()) == (EVENTS[3], EVENTS[1])
    assert tuple(batch.take(np.array([], np.intp)).events()) == ()


def test_an_empty_batch_has_no_events() -> None:
    batch = Batch.of([], TOPICS)
    assert (len(batch), list(batch.order()), list(batch.events())) == (0, [], [])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (Kind.BOOL, [True, None, False]),
        (Kind.INT, [0, None, -(2**63) + 1, 2**63 - 1]),
        (Kind.FLOAT, [0.0, None, float("inf"), 1e308]),
        (Kind.STRING, ["", None, "x", "x"]),
        (Kind.TIME, [0, None, -1]),
        (Kind.NULL, [None, None]),
    ],
)
def test_a_column_gives_back_its_values_and_their_types(kind: Kind, values: list[Value]) -> None:
    column = Column.of(kind, values)
    found = [column.value(row) for row in range(len(values))]
    assert [(type(v), v) for v in found] == [(type(v), v) for v in values]


def test_a_column_without_nulls_has_no_mask() -> None:
    assert Column.of(Kind.INT, [1, 2]).valid is None
    assert Column.of(Kind.INT, [1, None]).valid is not None


@settings(max_examples=50)
@given(cases())
def test_any_events_survive_the_columns(case: Case) -> None:
    batch = Batch.of(case.events, case.topics)
    without_nulls = [
        Event(
            e.topic,
            e.source,
            e.seq,
            e.time,
            {n: v for n in kinds if (v := e.attributes.get(n)) is not None},
        )
        for e in case.events
        for kinds in [batch.topics[e.topic].attributes]
    ]
    # as text, because NaN is not equal to itself
    assert [repr(event) for event in batch.events()] == [repr(event) for event in without_nulls]
    if case.time_ordered:
        assert list(batch.order()) == list(range(len(batch)))
