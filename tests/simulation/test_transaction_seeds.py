"""Scenes that once broke a promise of transactions; each keeps the sentence that explains it."""

from __future__ import annotations

import pytest

from concordant.sim.transaction_load import scene
from concordant.sim.transactions import simulate_transactions

SEEDS = {
    "a client that lost its memory had taken an event and not said so: its mailbox stayed full": (
        "static",
        "move",
        528,
    ),
    "an outcome was logged, and its row in the history lost with a crash": (
        "static",
        "advertise or subscribe",
        544,
    ),
    "the only broker died between its log and its word: only clients knew the outcome": (
        "static",
        "changing",
        800039,
    ),
    "a transaction was lost with the life that had begun it, and never was": (
        "static",
        "fuzz",
        1041,
    ),
    "what an advertisement attracts came when the transaction was over, and was dropped, though "
    "another advertisement had begun to count on it": ("open", "changing", 1818),
    "an application was gone after its first word, and nobody ended what it had begun": (
        "open",
        "alone",
        2194,
    ),
    "an event got the name of one that was forgotten in a crash": ("isolated", "unanswered", 354),
}


@pytest.mark.parametrize("why", SEEDS)
def test_a_scene_that_once_failed(why: str) -> None:
    kind, workload, seed = SEEDS[why]
    failure = simulate_transactions(scene(kind, workload, seed)).failure  # type: ignore[arg-type]
    assert failure is None, failure
