"""The machine contract: a batch equals its items, and a snapshot goes on where it was taken."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from concordant.machine.contract import flat
from concordant.machine.inputs import Received
from concordant.sim.transaction_load import scene
from concordant.sim.transactions import Stage


@pytest.mark.parametrize("kind", ["static", "open", "isolated"])
@pytest.mark.parametrize("workload", ["fuzz", "dispatch"])
def test_a_batch_equals_its_items_and_a_snapshot_goes_on(kind: str, workload: str) -> None:
    """Every input of a run is given again to copies: restored, and message by message."""
    stage = Stage(scene(kind, workload, 3, faults=False))  # type: ignore[arg-type]
    copies: dict[str, Any] = {}
    seen = 0

    def watch(world: Any, place: Any, given: Any, effects: Any) -> None:
        nonlocal seen
        make = place.make
        one = copies.get(place.address) or make()
        singles = [given]
        if isinstance(given, Received):
            singles = [Received(given.source, (m,), given.cause) for m in given.messages]
        found = [e for single in singles for e in one.handle(world.now, single)]
        assert flat(found) == flat(effects)
        fresh = make()
        fresh.restore(one.snapshot())
        assert fresh.snapshot() == one.snapshot() == place.machine.snapshot()
        copies[place.address] = fresh
        seen += len(singles)

    stage.world._watch = watch
    stage.play()
    assert seen > 100
    assert all(msgspec.msgpack.decode(one.snapshot()) is not None for one in copies.values())
