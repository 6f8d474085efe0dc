"""Planted bugs of ordered merging and of the baselines: each is caught; without it all is well."""

from __future__ import annotations

import pytest

from concordant.sim.merging_cases import play, random_case
from concordant.sim.merging_oracle import failure
from concordant.sim.run import simulate
from tests.detection.broadcast_bugs import BROADCAST_BUGS
from tests.detection.merging_bugs import BUGS, MergingBug, caught
from tests.detection.simulation_bugs import SimulationBug, planted, scenario_for


@pytest.mark.parametrize("which", BUGS, ids=lambda which: which.name)
def test_a_planted_bug_is_caught_by_the_case_that_is_known_to(which: MergingBug) -> None:
    assert caught(which, which.seed)


@pytest.mark.parametrize("which", BUGS[::4], ids=lambda which: which.name)
def test_without_the_bug_the_same_case_keeps_all_promises(which: MergingBug) -> None:
    assert failure(play(random_case(which.seed, which.mode))) is None


SEEDS = {
    "a sequencer with replicas tells what is not committed": 6,
    "a new leader of the replicas keeps its own log": 41,
    "an event that was repeated to a new leader gets two positions": 2,
    "a Paxos leader proposes without looking at what was accepted": 5,
    "a Paxos acceptor forgets in a crash": 16,
    "a Paxos acceptor accepts from any leader": 123,
    "one acceptance decides": 1,
    "a token that comes twice is held twice": 1,
    "a token is on its way before it is durable": 4,
    "a token does not say what was placed": 0,
    "a lost token is never sent again": 0,
    "a replica answers with what it has not heard to be committed": 6,
}
"""Of runs that are known to show each."""


@pytest.mark.parametrize("which", BROADCAST_BUGS, ids=lambda which: which.name)
def test_a_bug_planted_in_a_baseline_is_caught(which: SimulationBug) -> None:
    seed = SEEDS[which.name]
    scenario = scenario_for(which, seed)
    assert simulate(scenario, seed=seed).failure is None
    with planted(which):
        found = simulate(scenario, seed=seed).failure
    assert found is not None and found.name in which.breaks


def test_bugs_have_names_of_their_own() -> None:
    names = [which.name for which in (*BUGS, *BROADCAST_BUGS)]
    assert sorted(set(names)) == sorted(names)


ONCE_BROKEN = (
    (789, "changing"),  # a merger that came to life in the step of its log never asked its parents
    (4590, "filtering"),  # a life that ended did not say that a subscription had
    (605, "storm"),  # the oracle took a replica that was behind for a whole log
    (451, "stamped"),  # a new leader looked at its log before it had applied what was committed
    (1409, "stamped"),
    (2572, "stamped"),
    (10, "replaced"),  # a new leader takes again a part of what its log has
    (2085, "storm"),  # a mark that was read in a life that ended
    (3649, "storm"),  # the oracle compared a log with one that had let go of all of it
    (4670, "storm"),
    (6950, "storm"),
    (619, "changing"),  # the case was ended while small windows were still on their way
)


@pytest.mark.parametrize(("seed", "mode"), ONCE_BROKEN)
def test_a_case_that_once_broke_a_promise_keeps_all(seed: int, mode: str) -> None:
    assert failure(play(random_case(seed, mode))) is None
