"""Planted bugs in what hosted clients do: publish for guests, replace their logs by snapshots."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from concordant.deliver.correlated import Correlated
from concordant.machine.effects import Effect
from concordant.order.broadcast.sequencer import Ordered, SequencedClient, Sequencer
from concordant.order.client import Client
from concordant.order.clock import ClockClient
from concordant.order.fifo import FifoClient
from concordant.order.streams import Stream
from concordant.sim.scenario import Scenario
from tests.detection.simulation_bugs import PATTERN, Plant, SimulationBug

BUGS: list[SimulationBug] = []


def busy(scenario: Scenario) -> Scenario:
    """With guests, and with snapshots all the time."""
    workload = msgspec.structs.replace(scenario.workload, guests=2, compact_ms=13)
    return msgspec.structs.replace(scenario, workload=workload)


def bug(name: str, protocol: str, *breaks: str, **others: Any) -> Any:
    def add(plant: Plant) -> Plant:
        BUGS.append(SimulationBug(name, protocol, breaks, plant, sharpen=busy, **others))
        return plant

    return add


@bug("guests share one number", "fifo", "No Duplication", "No Creation", "Validity", "FIFO")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Client, "_number", lambda self, source, seq: None)


@bug(
    "after a crash a stream is looked for under the event's source",
    "fifo",
    *("No Duplication", "FIFO", "Validity", "Drained"),
)
def _(patch: pytest.MonkeyPatch) -> None:
    original = FifoClient._delivered

    def delivered(self: Any, n: int, stream: Stream, event: Any, **others: Any) -> Any:
        return msgspec.structs.replace(original(self, n, stream, event, **others), sender="")

    patch.setattr(FifoClient, "_delivered", delivered)


@bug(
    "after a crash the sequencer knows publishers by their guests",
    "sequencer",
    *("No Duplication", "Validity", "Drained"),
)
def _(patch: pytest.MonkeyPatch) -> None:
    original = Sequencer._sign

    def sign(self: Any, *given: Any) -> None:
        out: list[Effect] = given[-1]
        start = len(out)
        original(self, *given)
        for place, effect in enumerate(out[start:], start):
            records = getattr(effect, "records", ())
            if records and isinstance(records[0], Ordered):
                plain = tuple(msgspec.structs.replace(one, publisher="") for one in records)
                out[place] = msgspec.structs.replace(effect, records=plain)

    patch.setattr(Sequencer, "_sign", sign)


@bug("a snapshot remembers timers that nobody set", "sequencer", "Validity", "Drained")
def _(patch: pytest.MonkeyPatch) -> None:
    def crash(self: Any, state: Any) -> None:
        state.joining = {}

    patch.setattr(SequencedClient, "_crash", crash)


@bug(
    "a snapshot counts as delivered what waits for the frontier",
    "clock",
    *("Validity", "Drained", "FIFO"),
)
def _(patch: pytest.MonkeyPatch) -> None:
    original = ClockClient._crash

    def crash(self: Any, state: Any) -> None:
        state.merged.waiting.clear()
        original(self, state)

    patch.setattr(ClockClient, "_crash", crash)


@bug(
    "a snapshot of the level leaves the engine behind",
    "sequencer",
    *("Validity", "Agreed", "Total Order, strict", "No Creation", "No Duplication"),
    subscription=PATTERN,
    level="agreed",
)
def _(patch: pytest.MonkeyPatch) -> None:
    original = Correlated._recover

    def recover(self: Any, given: Any, out: list[Effect]) -> Any:
        empty = self._engine.save()
        found = original(self, given, out)
        self._engine.load(empty)
        return found

    patch.setattr(Correlated, "_recover", recover)
