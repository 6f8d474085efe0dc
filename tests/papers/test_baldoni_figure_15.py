"""Baldoni 2011, figure 15: a small buffer saves most tags and costs little latency.

Fifty topics of which few are popular, subscribers of all of them, an overlay of 1,000 nodes.
Subscribers deliver what is out of order and say so. With the printed rule a buffer does not help,
because its timestamps say nothing about higher topics (an erratum of section 5); with entries for
them it does.
"""

from __future__ import annotations

import pytest

from concordant.sim.metrics import Metrics, measure
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.run import simulate
from concordant.sim.scenario import Scenario, Topology, Workload

BUFFERS = (0, 2, 10, 1_000)


def scenario(buffer: int) -> Scenario:
    return Scenario(
        "sequencing",
        duration_ms=20_000,
        topology=Topology(50, 10, 10, popularity="power-law 0.901"),
        network=NetworkSpec(Latency("two-gaussian"), dissemination="tree", overlay_nodes=1_000),
        workload=Workload(1.0, popularity="power-law 0.901"),
        parameters={
            "tag": 1,
            "buffer_count_max": buffer,
            "time_to_live_us": 60_000_000,
            # Nothing is lost here: what is missing is on its way, and is not asked for.
            "ask_us": 10_000_000,
            "mark_us": 2_000_000,
            "mark_us_max": 10_000_000,
            "repeat_us": 3_000_000,
        },
    )


@pytest.fixture(scope="module")
def measured() -> dict[int, Metrics]:
    found = {}
    for buffer in BUFFERS:
        outcome = simulate(scenario(buffer), seed=1)
        assert outcome.failure is None
        found[buffer] = measure(outcome)
    return found


def test_the_share_of_tagged_deliveries_falls_quickly(measured: dict[int, Metrics]) -> None:
    tagged = [one.out_of_order / one.delivered for one in measured.values()]
    assert tagged == sorted(tagged, reverse=True)
    none, two, ten, endless = tagged
    assert none > 0.2
    assert two < none / 2
    assert ten < none / 10
    assert endless == 0


def test_a_small_buffer_costs_little_latency(measured: dict[int, Metrics]) -> None:
    latency = [one.latency_us_mean for one in measured.values()]
    assert latency == sorted(latency)
    assert latency[1] < 1.1 * latency[0]
