"""The same scenario and seed give the same history, byte for byte, in any process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from concordant.sim.protocols import PROTOCOLS

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys
import msgspec
from concordant.sim.run import simulate
from concordant.sim.swarm import random_scenario
for seed in (1, 2, 3):
    outcome = simulate(random_scenario(sys.argv[1], seed), seed=seed)
    for row in outcome.rows:
        sys.stdout.buffer.write(msgspec.json.encode(row) + b"\\n")
"""


def history(protocol: str, hash_seed: str) -> bytes:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, protocol],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_two_runs_under_different_hash_seeds_are_byte_equal(protocol: str) -> None:
    first = history(protocol, "1")
    assert len(first.splitlines()) > 50
    assert first == history(protocol, "2")
