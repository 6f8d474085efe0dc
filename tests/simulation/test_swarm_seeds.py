"""Seeds of swarms that once broke a promise, each with the sentence that explains it."""

from __future__ import annotations

import pytest

from concordant.sim.run import simulate
from concordant.sim.swarm import random_scenario

SEEDS = [
    ("fifo", 4001, "after a snapshot, what guests had published was noted source by source"),
    ("sequencing", 50, "nobody acknowledged what a client's earlier life had been sent"),
    ("sequencing-strict", 74, "the same, for a publisher that never spoke to that sequencer again"),
    ("sequencing-replicated", 1032, "repeated parcels were logged again, each a reason to repeat"),
    ("sequencing-replicated", 1180, "the same, behind a narrow link"),
]


@pytest.mark.parametrize(("protocol", "seed", "why"), SEEDS)
def test_the_seed_is_clean_now(protocol: str, seed: int, why: str) -> None:
    failure = simulate(random_scenario(protocol, seed), seed=seed).failure
    assert failure is None, f"{why}: {failure}"
