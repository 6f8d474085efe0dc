"""Every bug planted in guests and snapshots is found in simulated runs; without one, none is."""

from __future__ import annotations

import pytest

from concordant.sim.run import simulate
from concordant.sim.swarm import random_scenario
from tests.detection.hosted_bugs import BUGS, busy
from tests.detection.simulation_bugs import SEED_COUNT_MAX, SimulationBug, seeds_to_find


@pytest.mark.parametrize("which", BUGS, ids=lambda which: which.name)
def test_a_checker_finds(which: SimulationBug) -> None:
    found = seeds_to_find(which)
    assert found is not None, f"{which.name!r} survived {SEED_COUNT_MAX} seeds"


@pytest.mark.parametrize("protocol", ["none", "fifo", "clock", "sequencer"])
def test_without_a_bug_nothing_is_found(protocol: str) -> None:
    for seed in range(40):
        outcome = simulate(busy(random_scenario(protocol, seed)), seed=seed)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"
