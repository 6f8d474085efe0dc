"""The simulator: machine steps per second of one core, by protocol.

A step is one input that a machine handles, with its effects carried out: the message through the
network, the write to the disk, the row of the history. Runs are without faults and without checks.
It runs in one thread and waits for nothing, so processor time is what counts.
"""

from __future__ import annotations

from functools import partial
from time import process_time

from bench.measure import interleaved, timed
from bench.result import Column, Goal, Row, Section, Size
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.protocols import PROTOCOLS, layout_of
from concordant.sim.scenario import Scenario, Topology, Workload
from concordant.sim.workload import Load
from concordant.sim.world import World

SUBSCRIBERS = 20
PUBLISHERS = 5
STEPS_WANTED = 100_000


def _scenario(protocol: str, duration_ms: int) -> Scenario:
    return Scenario(
        protocol,
        duration_ms=duration_ms,
        topology=Topology(topics=1, publishers=PUBLISHERS, subscribers=SUBSCRIBERS),
        network=NetworkSpec(Latency("uniform", 1_000, 3_000), fifo=True),
        workload=Workload(1_000.0),
    )


def _world(scenario: Scenario) -> World:
    world = World(seed="1", network=scenario.network)
    layout = layout_of(scenario, "1")
    PROTOCOLS[scenario.protocol].build(world, scenario, layout)
    world.start()
    Load(world, scenario, layout, seed="1").begin()
    return world


def run(size: Size) -> Section:
    """Steps per second of every protocol."""
    duration_ms = max(100, size.rows // 1_000)
    steps: dict[str, int] = {}

    def measure(protocol: str) -> float:
        world = _world(_scenario(protocol, duration_ms))
        start = process_time()
        timed(lambda: world.run(duration_ms * 1_000))
        steps[protocol] = world.step_count
        return process_time() - start

    times = interleaved(size.rounds, {name: partial(measure, name) for name in PROTOCOLS})
    rows: list[Row] = [
        {
            "protocol": name,
            "steps": steps[name],
            "rate": steps[name] / timing.median,
            "spread": timing.spread,
        }
        for name, timing in times.items()
    ]
    rate = next(row["rate"] for row in rows if row["protocol"] == "sequencer")
    return Section(
        "simulator",
        "Simulator",
        f"{PUBLISHERS} publishers of 1,000 events/s each, {SUBSCRIBERS} subscribers, FIFO links of "
        "1 to 3 ms; one core, without faults and without checks.",
        (
            Column("protocol", "protocol"),
            Column("steps", "machine steps", "count"),
            Column("rate", "steps", "rate"),
            Column("spread", "spread", "percent"),
        ),
        rows,
        [Goal("machine steps, sequencer", f"≥ {STEPS_WANTED:,}/s", f"{rate:,.0f}/s")],
    )
