"""The swarm finds a broken promise and makes it small."""

from __future__ import annotations

from concordant.sim.run import simulate, with_chaos
from concordant.sim.scenario import (
    FAULT_KINDS,
    Chaos,
    Scenario,
    Topology,
    Workload,
    scenario_from,
    scenario_text,
)
from concordant.sim.swarm import minimised, random_scenario

WRONG = Scenario(
    "fifo",
    level="total",
    topology=Topology(topics=3, publishers=3, subscribers=4),
    workload=Workload(60.0),
    chaos=Chaos(chance=0.6),
)


def test_a_failure_is_made_small_and_still_fails_with_its_seed() -> None:
    failing = next(seed for seed in range(50) if simulate(WRONG, seed=seed).failure)
    small = minimised(WRONG, failing)
    again = simulate(scenario_from(scenario_text(small)), seed=failing).failure
    assert again is not None and again.name == "Total Order"
    assert small.faults == ()
    assert small.topology.subscribers == 2
    assert len(small.nodes) < len(WRONG.nodes)


def test_a_run_that_keeps_its_promise_is_left_as_it_is() -> None:
    scenario = random_scenario("fifo", 1)
    assert minimised(scenario, 1) == scenario


def test_chaos_is_drawn_from_the_seed_and_written_out() -> None:
    one, other = with_chaos(WRONG, 1), with_chaos(WRONG, 2)
    assert one.faults != other.faults
    assert one == with_chaos(WRONG, 1)
    assert one.chaos is None
    kinds = {fault.kind for seed in range(30) for fault in with_chaos(WRONG, seed).faults}
    assert kinds == set(FAULT_KINDS)
