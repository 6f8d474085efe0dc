"""Runs of the baselines in a storm that once broke a promise."""

from __future__ import annotations

import msgspec
import pytest

from concordant.sim.run import simulate
from concordant.sim.swarm import random_scenario
from tests.detection.broadcast_bugs import stormy


@pytest.mark.parametrize(
    ("protocol", "seed"),
    [
        ("token", 111),  # placed, crashed before the token was passed on, and placed again
    ],
)
def test_a_seed_that_once_broke_a_promise(protocol: str, seed: int) -> None:
    assert simulate(stormy(random_scenario(protocol, seed)), seed=seed).failure is None


def test_leaders_are_given_time_on_links_that_need_long_for_a_log() -> None:
    scenario = stormy(random_scenario("paxos", 209))
    slow = msgspec.structs.replace(scenario.network, bytes_per_s=100_000)
    scenario = msgspec.structs.replace(scenario, network=slow)
    assert simulate(scenario, seed=209).failure is None
