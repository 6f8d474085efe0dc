"""What an order costs: messages and latency of every protocol, and the busiest machine's time.

Runs are simulated; the time of machines is that of this processor, without network and disk, with
every event handed over by itself.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Sequence
from statistics import mean
from time import thread_time_ns
from typing import Any

from bench.result import Column, Goal, Row, Section, Size
from bench.sequencing import Meter, play
from concordant.machine.effects import Effect
from concordant.machine.inputs import Input, Received
from concordant.net.roles import LEVELS
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.protocols import PROTOCOLS, layout_of
from concordant.sim.scenario import Scenario, Topology, Workload
from concordant.sim.workload import Load
from concordant.sim.world import Place, World


class _Counts(Meter):
    """Messages that machines handle, by node."""

    def __init__(self) -> None:
        super().__init__()
        self.handled: Counter[str] = Counter()

    def watch(self, world: World, place: Place, given: Input, effects: Sequence[Effect]) -> None:
        del world, effects
        if isinstance(given, Received):
            self.handled[place.node.name] += len(given.messages)


def prices(size: Size) -> Section:
    """The same load under every protocol, the weakest level first."""
    seconds = 20 if size.name == "full" else 5
    rows: list[Row] = []
    for protocol, entry in sorted(PROTOCOLS.items(), key=lambda one: LEVELS.index(one[1].level)):
        scenario = Scenario(
            protocol,
            duration_ms=seconds * 1_000,
            topology=Topology(8, 4, 16, topics_per_subscriber=2),
            network=NetworkSpec(Latency("uniform", 1_000, 3_000), fifo=True),
            workload=Workload(50.0),
        )
        meter = _Counts()
        play(scenario, meter)
        events = len(meter.published_at)
        latencies = sorted(one for _, one in meter.latencies)
        rows.append(
            {
                "protocol": protocol,
                "level": entry.level,
                "latency": mean(latencies) / 1e6,
                "late": latencies[len(latencies) * 99 // 100] / 1e6,
                "messages": meter.handled.total() / events,
                "busiest": max(meter.handled.values()) / events,
            }
        )
    return Section(
        "prices",
        "What an order costs",
        "8 topics, 4 publishers of 50 events/s each to all of them, 16 subscribers of 2 topics "
        "each, first-in-first-out links of 1 to 3 ms, no faults; simulated. Messages are those "
        "that nodes handle, per event, repeats and acknowledgements included.",
        (
            Column("protocol", "protocol"),
            Column("level", "level"),
            Column("latency", "latency", "seconds"),
            Column("late", "99 %", "seconds"),
            Column("messages", "messages", "ns"),
            Column("busiest", "at the busiest node", "ns"),
        ),
        rows,
    )


class _Timed:
    """A machine whose time is counted."""

    def __init__(self, machine: Any, spent_ns: Counter[str], name: str) -> None:
        self._machine, self._spent_ns, self._name = machine, spent_ns, name

    def handle(self, now: int, given: Input) -> Sequence[Effect]:
        start = thread_time_ns()
        effects: Sequence[Effect] = self._machine.handle(now, given)
        self._spent_ns[self._name] += thread_time_ns() - start
        return effects

    @property
    def held_count(self) -> int:
        count: int = self._machine.held_count
        return count


def busiest(size: Size) -> Section:
    """One sequencer for all against one per topic: what the busiest process could take."""
    seconds = 10 if size.name == "full" else 3
    rows: list[Row] = []
    for nodes in (2, 5, 10, 20):
        for protocol in ("sequencer", "sequencing", "sequencing-strict"):
            scenario = Scenario(
                protocol,
                duration_ms=seconds * 1_000,
                topology=Topology(
                    nodes, 0, 0, nodes, topics_per_publisher=1, topics_per_subscriber=2
                ),
                network=NetworkSpec(Latency("uniform", 1_000, 3_000), fifo=True),
                workload=Workload(200.0),
            )
            rows.append({"nodes": nodes, "protocol": protocol, **_spent(scenario)})
    rate = {(row["nodes"], row["protocol"]): row["rate"] for row in rows}
    return Section(
        "busiest",
        "One sequencer, or one per topic",
        "As many topics as nodes; each node publishes to one topic and subscribes to two. The rate "
        "is how many events per second could be published by all if the busiest process had a "
        "processor for itself and machines cost what they cost here, one event at a time.",
        (
            Column("nodes", "nodes", "count"),
            Column("protocol", "protocol"),
            Column("who", "busiest process"),
            Column("cost", "its time per event", "seconds"),
            Column("rate", "events", "rate"),
            Column("latency", "latency", "seconds"),
        ),
        rows,
        [
            Goal(
                "rate of sequencing over that of the sequencer",
                "grows with the nodes",
                ", ".join(
                    f"{rate[n, 'sequencing'] / rate[n, 'sequencer']:.1f}x with {n}"
                    for n in (2, 5, 10, 20)
                ),
            )
        ],
    )


def _spent(scenario: Scenario) -> Row:
    meter = Meter()
    world = World(seed="1", network=scenario.network, recorder=meter)
    layout = layout_of(scenario, "1")
    PROTOCOLS[scenario.protocol].build(world, scenario, layout)
    spent_ns: Counter[str] = Counter()
    for place in world.places.values():
        place.machine = _Timed(place.machine, spent_ns, place.node.name)  # type: ignore[assignment]
    gc.disable()  # the collector would be counted at whoever is at work
    try:
        world.start()
        world.run(1_000_000)
        spent_ns.clear()
        Load(world, scenario, layout, seed="1").begin()
        world.run(scenario.duration_ms * 1_000 + 1_000_000)
    finally:
        gc.enable()
    (who, most_ns), events = spent_ns.most_common(1)[0], len(meter.published_at)
    return {
        "who": who,
        "cost": most_ns / events / 1e9,
        "rate": events / most_ns * 1e9,
        "latency": mean(one for _, one in meter.latencies) / 1e6,
    }
