"""Total notification order by real processes: a sequencer that is killed, changing topics."""

from __future__ import annotations

from pathlib import Path

import msgspec

from concordant.check.levels import check_level
from concordant.sim.scenario import Scenario, SubscriptionChange, Topology, Workload
from tests.network.live import Live

AFTER = 150
"""Events that are published once a process was killed."""

SCENARIO = Scenario(
    "sequencing",
    duration_ms=1_500,
    topology=Topology(topics=2, publishers=1, subscribers=2),
    workload=Workload(150.0),
)


def judged(live: Live) -> dict[str, int]:
    """The cases of each property, all of which hold."""
    verdicts = check_level(live.rows(), live.level)
    assert all(verdict.holds for verdict in verdicts), [str(verdict) for verdict in verdicts]
    return {verdict.name: verdict.checked for verdict in verdicts}


def judged_after_killing(scenario: Scenario, folder: Path, *, transport: str, killed: str) -> None:
    """Nothing is lost or doubled, and whoever has subscribed is owed all that comes afterwards.

    How many events that are follows from what is published, not from how long somebody was missed.
    """
    live = Live(scenario, folder, transport=transport, endless=True)
    (publisher,) = scenario.publishers
    try:
        live.wait_until(lambda: live.delivered_count() > 40 and live.all_subscribed())
        live.kill(killed)
        before = live.told(publisher)
        live.wait_until(lambda: live.told(publisher) >= before + AFTER)
        live.end_load()
        live.wait_for_the_end()
        cases = judged(live)
    finally:
        live.stop()
    assert set(live.layout.subscribes.values()) == {scenario.topics}  # all events are for all
    assert cases["Validity"] >= AFTER * len(scenario.subscribers)
    assert cases["Total Order"] >= AFTER


def test_a_sequencer_that_is_killed_loses_and_doubles_nothing_over_nats(tmp_path: Path) -> None:
    judged_after_killing(SCENARIO, tmp_path / "live", transport="nats", killed="sequencer-T1")


def test_a_node_of_replicas_that_is_killed_loses_and_doubles_nothing_over_tcp(
    tmp_path: Path,
) -> None:
    scenario = msgspec.structs.replace(SCENARIO, protocol="sequencing-replicated")
    # r1 leads every sequencer.
    judged_after_killing(scenario, tmp_path / "live", transport="tcp", killed="r1")


def test_topics_are_subscribed_and_left_while_events_flow(tmp_path: Path) -> None:
    changing = msgspec.structs.replace(
        SCENARIO,
        protocol="sequencing-strict",
        workload=Workload(
            150.0,
            subscriptions=(
                SubscriptionChange(300, "s2", unsubscribe=("T1",)),
                SubscriptionChange(700, "s2", subscribe=("T1",)),
                SubscriptionChange(900, "s1", unsubscribe=("T2",)),
            ),
        ),
    )
    live = Live(changing, tmp_path / "live", transport="tcp")
    try:
        live.wait_for_the_end()
        cases = judged(live)
    finally:
        live.stop()
    assert cases["Total Order, strict"] > 200
