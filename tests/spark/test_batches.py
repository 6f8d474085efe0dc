"""A batch of this process on Spark, as `correlate --engine spark` wants it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from concordant.correlate.columns import Batch
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
        relations = correlate_on(spark, batch, case.subscriptions)
        assert [_shown(one) for one in relations] == [_shown(one) for one in expected]
        found += len(relations)
    assert found > 5


def _shown(one: Relation) -> tuple[Any, ...]:
    return one.id, one.position, one.at, one.event_ids
