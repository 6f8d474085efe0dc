"""Tables on Spark: the kernel's relations in the kernel's order, and errors before a job."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from pyspark.errors import PySparkException

from concordant.errors import UsageError
from concordant.model.subscription import Policy
from concordant.spark import batch, correlate, in_order
from concordant.spark.asked import ask
from concordant.spark.session import explained
from tests.buckets import kernel_summaries, ordered
from tests.campaign.compare import case_of
from tests.generators import ALL_POLICIES
from tests.spark.frames import collected, frames


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=str)
def test_spark_gives_what_the_kernel_gives(spark: Any, policy: Policy) -> None:
    rng = Random(str(policy))
    for _ in range(20):
        case = ordered(case_of(6, policy, rng.randrange(1_000)))
        expected = kernel_summaries(case)
        if len(expected) > 2:
            break
    found = correlate(frames(spark, case), case.subscriptions)
    assert collected(found) == expected, str(case)


ROWS = [
    ("Order", "2026-03-02T09:00:00Z", "shop", 1, 17),
    ("Order", "2026-03-02T10:01:00+01:00", "shop", 2, 18),
    ("Payment", "2026-03-02 09:04", "bank", 1, 18),
    ("Payment", "2026-03-02T09:06:00", "bank", 2, 17),
]
SCHEMA = "topic string, time string, source string, seq bigint, order_id bigint"
QUESTION = "Order then Payment partition by order_id within 10 min"


def test_texts_are_times_and_relations_can_be_put_in_order(spark: Any) -> None:
    found = in_order(correlate(spark.createDataFrame(ROWS, SCHEMA), QUESTION)).collect()
    assert [(one.key, one.Order.id, one.Payment.id) for one in found] == [
        (["18"], "shop:2", "bank:1"),
        (["17"], "shop:1", "bank:2"),
    ]


@pytest.mark.parametrize(
    ("question", "options", "message"),
    [
        ("Order.n = 1", {}, "topic 'Order' has no attribute 'n'"),
        ("Order.order_id > 'x'", {}, "they cannot be compared"),
        ("Order", {"time": "ts"}, "there is no column 'ts' for the time"),
        ("Order", {"seq": "offset"}, "there is no column 'offset' for the seq"),
        ("Order", {"seq": "source", "source": "seq"}, "sequence numbers are integers"),
        ("Order", {"attributes": ["n"]}, "has no attribute 'n'"),
        ("Order", {"bad": "perhaps"}, "bad='perhaps' is unknown"),
        ("Order", {"release": "log"}, "a table is complete"),
    ],
)
def test_what_the_schema_shows_is_refused_before_a_job(
    spark: Any, question: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as told:
        correlate(spark.createDataFrame(ROWS, SCHEMA), question, **options)
    assert message in str(told.value)


def test_a_type_that_no_predicate_compares_is_refused_only_if_somebody_asks(spark: Any) -> None:
    schema = "topic string, time bigint, source string, seq bigint, list array<int>"
    frame = spark.createDataFrame([("A", 1, "s", 1, [1])], schema)
    assert correlate(frame, "A").count() == 1
    with pytest.raises(UsageError, match="has the type array<int>"):
        correlate(frame, "A.list > 1")


BAD = [
    ("Order", "yesterday", "shop", 3, 17),
    ("Payment", None, "bank", 3, 17),
    (None, "2026-03-02T09:00:00Z", "shop", 4, 17),
    ("Order", "2026-13-02T09:00:00Z", "shop", 5, 17),
    ("Order", "2026-03-02T09:00:00Z", None, 6, 17),
    ("Order", "2026-03-02T09:00:00Z", "shop", 1, 17),
]
"""No time, no topic, no source, an impossible month, and an event that is there twice."""


def test_rows_that_cannot_be_events_end_the_job_or_are_left_out(spark: Any) -> None:
    good = correlate(spark.createDataFrame(ROWS, SCHEMA), QUESTION)
    mixed = spark.createDataFrame(ROWS + BAD, SCHEMA)
    assert collected(correlate(mixed, QUESTION, bad="skip")) == collected(good)
    with pytest.raises(PySparkException) as told:
        correlate(mixed, QUESTION).collect()
    error = explained(told.value)
    assert isinstance(error, UsageError)
    assert "a row cannot be an event" in error.message
    asked = ask(mixed, QUESTION, bad="skip")
    answers = batch.answers_of(asked.rows(), asked.job)
    assert {row.what: row["count"] for row in answers.groupBy("what").count().collect()} == {
        None: 2,
        "bad": 5,
        "repeated": 1,
        "counts": answers.filter("what = 'counts'").count(),
    }


def test_unary_predicates_are_tested_before_rows_reach_python(spark: Any) -> None:
    asked = ask(spark.createDataFrame(ROWS, SCHEMA), "Order then Payment and Order.order_id = 17")
    assert asked.rows().filter("topic = 0").count() == 1
    neighbours = ask(
        spark.createDataFrame(ROWS, SCHEMA),
        "Order[1].order_id = 17 and Order[2].order_id = 18 match first contiguous",
    )
    assert neighbours.rows().count() == 2
