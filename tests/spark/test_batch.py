"""Tables on Spark: the kernel's relations in the kernel's order, and errors before a job."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from concordant.model.subscription import Policy
from concordant.spark import correlate
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
