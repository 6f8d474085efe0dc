"""Cut into buckets and pieces, the relations are those of the kernel, in its order."""

from __future__ import annotations

from random import Random

import pytest

from concordant.model.subscription import Policy
from tests.buckets import bucket_summaries, kernel_summaries, ordered
from tests.campaign.compare import case_of
from tests.generators import ALL_POLICIES

CASES_PER_POLICY = 12


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=str)
def test_any_cut_gives_what_the_kernel_gives(policy: Policy) -> None:
    delivered = 0
    for number in range(CASES_PER_POLICY):
        case = ordered(case_of(5, policy, number))
        expected = kernel_summaries(case)
        rng = Random(f"{policy}/{number}")
        assert bucket_summaries(case, rng, saved=number % 3 == 0) == expected, str(case)
        delivered += bool(expected)
    assert delivered > CASES_PER_POLICY // 3
