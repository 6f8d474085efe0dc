"""Every machine of every protocol keeps the laws of the contract."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concordant.sim.protocols import PROTOCOLS
from concordant.sim.swarm import random_scenario
from tests import laws

SEEDS = st.integers(0, 100_000)
protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


@protocols
@given(seed=SEEDS)
@settings(max_examples=12)
def test_a_batch_equals_its_items_one_by_one(protocol: str, seed: int) -> None:
    for life in laws.lives_of(random_scenario(protocol, seed), seed=seed):
        laws.a_batch_equals_its_items(life, Random(seed))


@protocols
def test_the_law_of_batches_was_tried_on_batches(protocol: str) -> None:
    lives = [
        life
        for seed in range(8)
        for life in laws.lives_of(random_scenario(protocol, seed), seed=seed)
    ]
    assert sum(laws.a_batch_equals_its_items(life, Random(1)) for life in lives) > 20


@protocols
@given(seed=SEEDS)
@settings(max_examples=8)
def test_a_restored_machine_goes_on_alike(protocol: str, seed: int) -> None:
    for life in laws.lives_of(random_scenario(protocol, seed), seed=seed):
        laws.a_restored_machine_goes_on_alike(life, Random(seed))


@protocols
@given(seed=SEEDS)
@settings(max_examples=5)
def test_every_effect_repeats_its_cause(protocol: str, seed: int) -> None:
    for life in laws.lives_of(random_scenario(protocol, seed), seed=seed):
        laws.effects_repeat_their_cause(life)


@protocols
@given(seed=SEEDS)
@settings(max_examples=8)
def test_an_illegal_input_raises_and_changes_nothing(protocol: str, seed: int) -> None:
    for life in laws.lives_of(random_scenario(protocol, seed), seed=seed):
        laws.an_illegal_input_changes_nothing(life, Random(seed))


def test_the_laws_hold_with_the_kernel_on_top() -> None:
    scenario = msgspec.structs.replace(
        random_scenario("sequencer", 5), subscription="T1 then T1[2]"
    )
    for life in laws.lives_of(scenario, seed=5):
        laws.a_batch_equals_its_items(life, Random(5))
        laws.a_restored_machine_goes_on_alike(life, Random(5))
        laws.effects_repeat_their_cause(life)
