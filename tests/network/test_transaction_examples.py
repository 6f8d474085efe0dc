"""The examples of transactions say what they say they do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "transactions"


def said(name: str) -> str:
    run = [sys.executable, str(FOLDER / name)]
    return subprocess.run(run, capture_output=True, text=True, check=True, timeout=60).stdout


def test_an_instance_goes_to_an_agent_and_comes_back() -> None:
    text = said("dispatching.py")
    assert [line.strip() for line in text.splitlines() if "gets" in line] == [
        "dispatcher gets step 0",
        "a1 gets step 1",
        "a1 gets step 2",
        "dispatcher gets step 3",
    ]
    assert text.count("Committed") == 2


def test_a_subscription_moves_and_no_order_is_lost_or_doubled() -> None:
    assert said("moving.py").splitlines() == [
        "the move: Committed",
        "orders: 60 of 60 arrived, 0 twice",
        "before the move at old, after it at new: True",
    ]
