"""`order/clock` live, and the kernel over the same events as a table: one answer, one order."""

from __future__ import annotations

import msgspec
import pytest

from concordant.local import correlate
from concordant.sim.run import Outcome, simulate
from concordant.sim.scenario import Scenario, Topology, Workload
from concordant.sim.swarm import random_scenario

QUESTION = """
up: T1 then T2 and T1.kind < T2.kind consume matched within 200 ms
pair: T2[1].kind = T2[2].kind match recent
"""

Relation = tuple[str, int, tuple[str, ...]]


def delivered(outcome: Outcome, process: str) -> list[Relation]:
    return [
        (row.subscription, row.conjunction, row.events)
        for row in outcome.rows
        if row.step == "deliver" and row.process == process
    ]


def over_the_table(outcome: Outcome) -> list[Relation]:
    events = [row.event for row in outcome.rows if row.event is not None]
    table = [
        {"topic": e.topic, "source": e.source, "seq": e.seq, "time": e.time, **e.attributes}
        for e in events
    ]
    return [
        (one.subscription, one.conjunction, one.event_ids) for one in correlate(table, QUESTION)
    ]


def scenario_of(seed: int) -> Scenario:
    """The swarm's network and faults under a busier load; nobody is suspected falsely."""
    drawn = random_scenario("clock", seed)
    return msgspec.structs.replace(
        drawn,
        duration_ms=400,
        subscription=QUESTION,
        topology=Topology(topics=2, publishers=3, subscribers=2, sync_us=drawn.topology.sync_us),
        workload=Workload(60.0, kinds=4),
        faults=tuple(
            msgspec.structs.replace(fault, node="p1")
            for fault in drawn.faults
            if fault.kind in ("loss", "duplication", "reordering", "skew")
        ),
        parameters={**drawn.parameters, "suspect_us": 10_000_000},
    )


@pytest.mark.parametrize("seed", range(12))
def test_live_and_table_deliver_the_same_relations_in_the_same_order(seed: int) -> None:
    outcome = simulate(scenario_of(seed), seed=seed)
    assert outcome.failure is None
    expected = over_the_table(outcome)
    assert len(expected) > 10
    assert delivered(outcome, "s1") == expected
    assert delivered(outcome, "s2") == expected
