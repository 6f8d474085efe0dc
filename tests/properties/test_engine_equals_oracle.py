"""The clear engine delivers what the brute-force oracle delivers, however the stream is cut.

Seeded cases for every policy, and Hypothesis on top. A failing seeded case is replayed, smaller, by
`python -m tests.campaign --only correlation --seed 0 --policy "…" --case N`.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concordant.model.subscription import Policy
from tests.campaign.compare import (
    case_of,
    cuts_of,
    cuts_of_case,
    differs,
    engine_relations,
    oracle_relations,
    plan_of,
    written,
)
from tests.generators import ALL_POLICIES, Case, cases

SEED = 0
CASES_PER_POLICY = 80


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=str)
def test_engine_and_oracle_agree_on_seeded_cases(policy: Policy) -> None:
    for number in range(CASES_PER_POLICY):
        case = case_of(SEED, policy, number)
        why = differs(case, cuts_of_case(SEED, policy, number, case))
        assert why is None, f"case {number} differs {why}\n{case}"


@settings(max_examples=150)
@given(cases())
def test_engine_and_oracle_agree_when_policies_are_mixed(case: Case) -> None:
    assert written(engine_relations(case, plan_of(case))) == written(oracle_relations(case))


@settings(max_examples=100)
@given(cases(), st.integers(0, 2**32))
def test_a_stream_cut_anywhere_gives_the_same_relations(case: Case, seed: int) -> None:
    plan = plan_of(case)
    whole = written(engine_relations(case, plan))
    assert written(engine_relations(case, plan, cuts_of(case, Random(seed)))) == whole


@settings(max_examples=100)
@given(cases())
def test_relations_come_in_the_order_of_the_events_that_complete_them(case: Case) -> None:
    place = {event.order_key: i for i, event in enumerate(case.events)}
    at = [place[relation.at] for relation in engine_relations(case, plan_of(case))]
    assert at == sorted(at)


@settings(max_examples=100)
@given(cases())
def test_no_two_relations_have_the_same_identity(case: Case) -> None:
    ids = [relation.id for relation in engine_relations(case, plan_of(case))]
    assert len(set(ids)) == len(ids)
