"""The kernel delivers what the clear engine delivers, however the stream is cut.

Seeded cases for every policy, and Hypothesis on top. A failing seeded case is replayed, smaller, by
`python -m tests.campaign --only correlation --seed 3 --policy "…" --case N`, which asks the oracle
as well.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concordant.correlate.columns import Batch
from concordant.correlate.engine import Engine
from concordant.correlate.kernel import Kernel
from concordant.model.relation import Relation
from concordant.model.subscription import Policy
from tests.campaign.compare import case_of, contrast, engine_relations, plan_of
from tests.campaign.kernel import kernel_relations, places_of, places_of_case, summaries
from tests.generators import ALL_POLICIES, Case, cases

SEED = 3
CASES_PER_POLICY = 100


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=str)
def test_kernel_and_engine_agree_on_seeded_cases(policy: Policy) -> None:
    delivering = 0
    for number in range(CASES_PER_POLICY):
        case = case_of(SEED, policy, number)
        plan = plan_of(case)
        expected = summaries(engine_relations(case, plan))
        places = places_of_case(SEED, policy, number, case)
        found = summaries(kernel_relations(case, plan, places))
        assert found == expected, f"case {number} {contrast(found, expected, 'kernel')}\n{case}"
        delivering += bool(expected)
    assert delivering > CASES_PER_POLICY // 2


@settings(max_examples=150)
@given(cases())
def test_kernel_and_engine_agree_when_policies_are_mixed(case: Case) -> None:
    plan = plan_of(case)
    assert plain(kernel_relations(case, plan)) == plain(engine_relations(case, plan))


@settings(max_examples=150)
@given(cases(), st.integers(0, 2**32))
def test_a_stream_cut_anywhere_gives_the_same_relations(case: Case, seed: int) -> None:
    plan = plan_of(case)
    whole = plain(kernel_relations(case, plan))
    assert plain(kernel_relations(case, plan, places_of(case, Random(seed)))) == whole


@settings(max_examples=150)
@given(cases())
def test_kernel_and_engine_count_the_same(case: Case) -> None:
    plan = plan_of(case)
    kernel = Kernel(plan, time_ordered=case.time_ordered)
    engine = Engine(plan, time_ordered=case.time_ordered)
    kernel.step(Batch.of(case.events, case.topics))
    engine.step(case.events)
    assert counted(kernel) == counted(engine)


def counted(one: Kernel | Engine) -> dict[str, tuple[int, ...]]:
    return {name: (c.events, c.admitted, c.relations, c.capped) for name, c in one.counters.items()}


def plain(relations: list[Relation]) -> list[str]:
    """Relations as text with their events' values; null and missing are the same."""
    return [
        repr(
            (
                summary,
                [
                    (
                        e.topic,
                        e.time,
                        sorted((k, v) for k, v in e.attributes.items() if v is not None),
                    )
                    for e in relation.events
                ],
            )
        )
        for summary, relation in zip(summaries(relations), relations, strict=True)
    ]
