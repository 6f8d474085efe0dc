"""Runs of a pipeline in processes of their own, to be killed at random and at the worst moments."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from random import Random

from concordant.spark.checkpoint import Checkpoint
from tests.processes import kill_with_descendants

ROOT = Path(__file__).resolve().parents[2]
MOMENTS = ("random", "sink", "commit")
"""A random one; results written, nothing committed; committed by us, not yet by Spark."""

OPTIONS = """\
[spark.options]
"spark.driver.memory" = "1g"
"spark.driver.extraJavaOptions" = "-Xss8m -XX:TieredStopAtLevel=1"
"spark.sql.shuffle.partitions" = "2"
"""
"""For runs so short that the JVM's second compiler never pays."""

_SECONDS_MAX = 6.0
"""A run is killed at random within this time of its session being up."""


def failure(folder: Path) -> str:
    """Run the pipeline of a folder undisturbed; nothing, or the last that it said."""
    if _start(folder).wait() == 0:
        return ""
    return (folder / "driver.log").read_text().strip()[-500:] or "it failed without a word"


def killed(folder: Path, rng: Random, number: int) -> str:
    """Start a run that is to die, and say how it died; nothing if it ended before."""
    how = MOMENTS[number % len(MOMENTS)]
    if how == "random":
        process = _start(folder)
        assert process.stdout is not None
        process.stdout.readline()  # its session is up
        try:
            process.wait(timeout=rng.uniform(0, _SECONDS_MAX))
        except subprocess.TimeoutExpired:
            kill_with_descendants(process.pid)
    else:
        last = Checkpoint(folder / "checkpoint" / "concordant").last()
        return killed_in(folder, how, last.step + 1 if last else 0)
    return how if process.wait() == -signal.SIGKILL else ""


def killed_in(folder: Path, how: str, step: int) -> str:
    """Start a run that is to die in a step, and say how it died; nothing if it did not."""
    return how if _start(folder, how, str(step)).wait() == -signal.SIGKILL else ""


def lines(folder: Path) -> list[str]:
    """All relations that were written as JSON Lines, in the order of their steps."""
    paths = sorted((folder / "out").glob("[0-9]*.jsonl"))
    return [line for path in paths for line in path.read_text().splitlines()]


def _start(folder: Path, *place: str) -> subprocess.Popen[bytes]:
    with (folder / "driver.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.crash_driver", str(folder), *place],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
