"""Cut into buckets and pieces, the relations are those of the kernel, in its order."""

from __future__ import annotations

from random import Random

import pyarrow as pa
import pytest

from concordant.model.kind import INT_MAX
from concordant.model.subscription import Policy
from concordant.spark.step import Bucket, step
from tests.buckets import job_of, kernel_summaries, ordered, pieces, rows_of, spread, summaries
from tests.campaign.compare import case_of
from tests.generators import ALL_POLICIES, Case

CASES_PER_POLICY = 12


def bucket_summaries(case: Case, rng: Random, *, saved: bool) -> list[tuple[object, ...]]:
    job = job_of(case)
    answers = []
    for bucket in spread(job, case, rng.choice((1, 2, 5))):
        whole, state = Bucket(job), None
        for piece in pieces(rng, len(bucket)):
            rows = [rows_of(job, [event], index) for index, event in bucket[piece]]
            table = pa.concat_tables([rows_of(job, [], 0), *rows])
            if saved:
                following = bucket[piece.stop :]
                until_us = following[0][1].time if following else INT_MAX
                state, answer = step(job, state, table, until_us=until_us)
                answers.append(answer)
            else:
                answers.append(whole.take(table))
    return summaries(pa.concat_tables(answers))


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
