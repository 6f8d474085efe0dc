"""A batch of this process on Spark, as `correlate --engine spark` wants it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from concordant.correlate.columns import Batch
from concordant.files import read_events
from concordant.files.subscriptions import read_subscriptions
from concordant.local import correlate_batch, plan_for
from concordant.model.relation import Relation
from concordant.spark import batches
from concordant.spark.batches import correlate_on
from tests.buckets import ordered
from tests.campaign.compare import case_of
from tests.generators import ALL_POLICIES


@pytest.mark.parametrize("way", ["spooled", "through the JVM"])
def test_spark_gives_what_the_local_engine_gives(
    spark: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way != "spooled":
        monkeypatch.setattr(batches, "task_count", lambda session, job: "a test says so")
    rng = Random(3)
    found = 0
    for policy in ALL_POLICIES[::8]:
        case = ordered(case_of(6, policy, rng.randrange(1_000)))
        batch = Batch.of(case.events, case.topics)
        expected = list(correlate_batch(batch, plan_for(batch, case.subscriptions)))
        relations, _ = correlate_on(spark, batch, case.subscriptions)
        assert [_shown(one) for one in relations] == [_shown(one) for one in expected]
        found += len(relations)
    assert found > 5


@pytest.mark.parametrize("way", ["spooled", "through the JVM"])
def test_what_the_local_engine_warns_of_is_told_by_spark_too(
    spark: Any, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way != "spooled":
        monkeypatch.setattr(batches, "task_count", lambda session, job: "a test says so")
    topics = "A" * 1_000 + "B" * 1_000 + "C"
    rows = [
        {"topic": topic, "source": "s", "seq": i, "time": i, "x": 1}
        for i, topic in enumerate(topics)
    ]
    batch = read_events(rows)
    question = "long: A.x != B.x and C.x > 0\nshort: A[1].x = A[2].x + 1 cap 10"
    subscriptions = read_subscriptions(question)
    expected = correlate_batch(batch, plan_for(batch, subscriptions)).counters
    _, counters = correlate_on(spark, batch, subscriptions)
    assert expected["short"].capped > 0 and expected["long"].over_budget > 0
    assert sum(one.capped for one in counters.values()) == sum(
        one.capped for one in expected.values()
    )
    assert {name: one.over_budget for name, one in counters.items()} == {
        name: one.over_budget for name, one in expected.items()
    }


def _shown(one: Relation) -> tuple[Any, ...]:
    return one.id, one.position, one.at, one.event_ids


def test_times_beyond_the_years_of_python_are_numbers_like_others(spark: Any) -> None:
    rows = [
        {"topic": "A", "source": "s", "seq": number, "time": 1_700_000_000_000_000_000 + number}
        for number in range(2)
    ]
    batch = read_events(rows)
    subscriptions = read_subscriptions("A[1] then A[2]")
    expected = list(correlate_batch(batch, plan_for(batch, subscriptions)))
    relations, _ = correlate_on(spark, batch, subscriptions)
    assert [_shown(one) for one in relations] == [_shown(one) for one in expected]
    assert relations
