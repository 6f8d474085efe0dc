"""Cut into buckets, or read from files by tasks, the relations are the kernel's, in its order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from concordant.model.subscription import Policy
from tests.buckets import bucket_summaries, kernel_summaries, ordered
from tests.campaign.compare import case_of
from tests.generators import ALL_POLICIES
from tests.scans import file_summaries

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


def test_tasks_that_read_files_give_what_the_kernel_gives(tmp_path: Path) -> None:
    forms: Counter[str] = Counter()
    for number in range(CASES_PER_POLICY * len(ALL_POLICIES)):
        case = ordered(case_of(8, ALL_POLICIES[number % len(ALL_POLICIES)], number))
        expected = kernel_summaries(case)
        found, form = file_summaries(case, Random(number), tmp_path)
        assert found == expected, str(case)
        forms[form] += bool(expected)
    assert min(forms["CSV"], forms["Parquet"]) > CASES_PER_POLICY, forms
