"""What many events at once cost: counted in operations of the interpreter, never in time."""

from __future__ import annotations

import sys
from functools import partial
from types import FrameType
from typing import Any

import pytest

from concordant.machine.requests import Publish
from concordant.sim.network import Latency, NetworkSpec
from concordant.sim.protocols import PROTOCOLS, layout_of
from concordant.sim.recorder import Recorder
from concordant.sim.scenario import Scenario, Topology
from concordant.sim.world import World

STRATEGIES = ("sequencing", "sequencing-strict", "sequencing-replicated", "stamped")


def operations(protocol: str, batch: int) -> int:
    """Operations of all machines while three publishers have a batch under way at once."""
    scenario = Scenario(
        protocol,
        topology=Topology(3, 3, 3, topics_per_publisher=1),
        network=NetworkSpec(Latency("uniform", 1_000, 3_000), fifo=True),
    )
    recorder = Recorder("costs", level="total")
    world = World(seed="1", network=scenario.network, recorder=recorder)
    layout = layout_of(scenario, "1")
    PROTOCOLS[protocol].build(world, scenario, layout)
    world.start()
    world.run(1_000_000)
    for name, topics in layout.publishes.items():
        for number in range(batch):  # each at an instant of its own, so that they are no run
            publish = partial(world.command, name, Publish(topics[0]))
            world.call(world.now + 1 + number, publish)
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        if "/order/" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        world.run(world.now + 300_000)
    finally:
        sys.settrace(before)
    delivered = sum(row.step == "deliver" for row in recorder.rows())
    assert delivered == 9 * batch
    return count


@pytest.mark.parametrize("protocol", STRATEGIES)
def test_four_times_as_many_events_cost_about_four_times_as_much(protocol: str) -> None:
    few, many = (operations(protocol, batch) for batch in (10, 40))
    assert many < 1.3 * 4 * few
