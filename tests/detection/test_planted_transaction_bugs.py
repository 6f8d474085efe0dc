"""Every bug planted in transactions is found in simulated scenes; without one, none is."""

from __future__ import annotations

import pytest

from concordant.sim.transaction_load import WORKLOADS, scene
from concordant.sim.transactions import simulate_transactions
from tests.detection.transaction_bugs import (
    SCENE_COUNT_MAX,
    TransactionBug,
    planted,
    scenes_to_find,
)
from tests.detection.transaction_edge_bugs import BUGS

CLEAN_COUNT = 2


@pytest.mark.parametrize("which", BUGS, ids=lambda which: which.name)
def test_a_checker_finds(which: TransactionBug) -> None:
    found = scenes_to_find(which)
    assert found is not None, f"{which.name!r} survived {SCENE_COUNT_MAX} scenes"


@pytest.mark.parametrize("kind", ["static", "open", "isolated"])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_without_a_bug_nothing_is_found(kind: str, workload: str) -> None:
    for which in BUGS:
        with planted(which):
            pass
    for seed in range(CLEAN_COUNT):
        failure = simulate_transactions(scene(kind, workload, seed)).failure  # type: ignore[arg-type]
        assert failure is None, f"seed {seed}: {failure}"
