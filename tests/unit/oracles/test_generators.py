"""The random cases: well-typed, repeatable, and rich enough to find something."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings

from concordant.model.kind import Kind, Value
from concordant.model.subscription import Policy
from concordant.model.topic import schemas
from tests.generators import ALL_POLICIES, Case, cases, random_case
from tests.oracles.brute import relations

TYPES: dict[Kind, type] = {
    Kind.INT: int,
    Kind.FLOAT: float,
    Kind.STRING: str,
    Kind.BOOL: bool,
    Kind.TIME: int,
}


def fits(value: Value, kind: Kind) -> bool:
    return value is None or type(value) is TYPES.get(kind)


@settings(max_examples=50, deadline=None)
@given(cases())
def test_events_and_derived_events_fit_their_schemas(case: Case) -> None:
    topics = schemas([*case.topics, *case.derived_topics])
    found = relations(
        case.subscriptions,
        case.events,
        topic_order=case.topic_order,
        time_ordered=case.time_ordered,
    )
    for event in [*case.events, *(event for relation in found for event in relation.events)]:
        kinds = topics[event.topic].attributes
        assert all(fits(value, kinds[name]) for name, value in event.attributes.items())


@settings(max_examples=50, deadline=None)
@given(cases())
def test_events_are_in_total_order_and_sources_count_upwards(case: Case) -> None:
    keys = [event.order_key for event in case.events]
    if case.time_ordered:
        assert keys == sorted(set(keys))
    for source in {key.source for key in keys}:
        seqs = [key.seq for key in keys if key.source == source]
        assert seqs == sorted(set(seqs))


def test_a_seed_gives_the_same_case_again() -> None:
    assert str(random_case(Random(7))) == str(random_case(Random(7)))


@pytest.mark.parametrize("policy", ALL_POLICIES, ids=str)
def test_most_cases_deliver_under_every_policy(policy: Policy) -> None:
    made = [random_case(Random(seed), policy=policy) for seed in range(60)]
    delivering = sum(
        bool(
            relations(
                case.subscriptions,
                case.events,
                topic_order=case.topic_order,
                time_ordered=case.time_ordered,
            )
        )
        for case in made
    )
    assert delivering > 0.6 * len(made)
