"""Causal delivery by real processes: a broker that is killed while events flow."""

from __future__ import annotations

from pathlib import Path

import pytest

from concordant.check.levels import check_level
from concordant.sim.scenario import Scenario, SubscriptionChange, Topology, Workload
from tests.network.live import Live

SCENARIO = Scenario(
    "causal",
    duration_ms=1_500,
    topology=Topology(topics=2, publishers=1, subscribers=1, clients=2),
    workload=Workload(
        60.0, replies=0.2, subscriptions=(SubscriptionChange(900, "c2", unsubscribe=("T2",)),)
    ),
)
"""Whoever is attached a moment late is owed less: so the run ends when it is quiet."""


@pytest.mark.parametrize("transport", ["tcp", "nats"])
def test_a_broker_that_is_killed_breaks_no_promise(tmp_path: Path, transport: str) -> None:
    live = Live(SCENARIO, tmp_path / "live", transport=transport)
    try:
        live.wait_until(lambda: live.delivered_count() > 40)
        live.kill("broker-1")
        live.wait_for_the_end()
        verdicts = check_level(live.rows(), "causal")
    finally:
        live.stop()
    assert all(one.holds for one in verdicts), [str(one) for one in verdicts]
    cases = {one.name: one.checked for one in verdicts}
    assert cases["Causal"] > 150
