"""Every bug planted in protocols and drivers is found in simulated runs; without one, none is."""

from __future__ import annotations

import pytest

from concordant.sim.protocols import PROTOCOLS
from concordant.sim.run import simulate
from concordant.sim.swarm import random_scenario
from tests.detection.simulation_bugs import (
    BUGS,
    SEED_COUNT_MAX,
    SimulationBug,
    planted,
    scenario_for,
    seeds_to_find,
)

CLEAN_COUNT = 60


@pytest.mark.parametrize("which", BUGS, ids=lambda which: which.name)
def test_a_checker_finds(which: SimulationBug) -> None:
    found = seeds_to_find(which)
    assert found is not None, f"{which.name!r} survived {SEED_COUNT_MAX} seeds"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_a_bug_nothing_is_found(protocol: str) -> None:
    for which in BUGS:
        with planted(which):
            pass
    for seed in range(CLEAN_COUNT):
        outcome = simulate(random_scenario(protocol, seed), seed=seed)
        assert outcome.failure is None, f"seed {seed}: {outcome.failure}"


def test_what_a_bug_needs_to_show_breaks_nothing_by_itself() -> None:
    for which in BUGS:
        for seed in range(5 if not which.level else 0):
            assert simulate(scenario_for(which, seed), seed=seed).failure is None, which.name


def test_bugs_have_names_of_their_own() -> None:
    names = [which.name for which in BUGS]
    assert sorted(set(names)) == sorted(names)
