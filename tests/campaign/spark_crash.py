"""Kill -9 of a streaming run, again and again: none lost, none twice.

A run over a folder of files is killed at random moments and at the worst ones (results written and
nothing committed; committed by us and not yet by Spark), each time started again from what it left,
until it ends. Its JSON Lines, all files in order, must be those of a run that nobody disturbed. A
campaign in which fewer runs died than were to be killed fails.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from concordant.spark.checkpoint import Checkpoint
from tests.campaign.shape import Options, Report

NAME = "spark-crash"

ADAPTERS = ("files", "store")
FILE_COUNT = 32
ROWS_PER_FILE = 150
KILL_COUNT = 22
ROOT = Path(__file__).resolve().parents[2]


def make_input(folder: Path, seed: int) -> None:
    """Files in which three sources run ahead of each other."""
    rng = np.random.default_rng(seed)
    count = FILE_COUNT * ROWS_PER_FILE
    source = rng.integers(0, 3, count)
    ahead = np.array([0, 40_000, 90_000])
    time = np.sort(rng.integers(0, 10_000_000, count)) + ahead[source]
    table = pa.table(
        {
            "topic": np.array(["T", "U"])[rng.integers(0, 2, count)],
            "source": np.array(["a", "b", "c"])[source],
            "seq": np.arange(count),
            "time": time,
            "k": rng.integers(0, 20, count),
            "v": rng.integers(0, 50, count),
        }
    )
    (folder / "in").mkdir(parents=True)
    for number in range(FILE_COUNT):
        rows = table.slice(number * ROWS_PER_FILE, ROWS_PER_FILE)
        path = folder / "in" / f"{number}.parquet"
        pq.write_table(rows, path)
        os.utime(path, (1_000_000 + number, 1_000_000 + number))  # Spark takes the oldest first


def start(folder: Path, adapter: str, *place: str) -> subprocess.Popen[bytes]:
    arguments = [sys.executable, "-m", "tests.spark.crash_driver", str(folder), adapter, *place]
    return subprocess.Popen(
        arguments,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def lines(folder: Path) -> list[str]:
    """All relations, in the order of their micro-batches."""
    paths = sorted((folder / "out").glob("*.jsonl"))
    return [line for path in paths for line in path.read_text().splitlines()]


def killed(folder: Path, adapter: str, rng: Random, number: int) -> str:
    """Start a run that is to die, and say how it died; nothing if it ended before."""
    how = ("random", "sink", "commit")[number % 3]
    if how == "random":
        process = start(folder, adapter)
        assert process.stdout is not None
        process.stdout.readline()  # its session is up
        try:
            process.wait(timeout=rng.uniform(0, 6))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    else:
        last = Checkpoint(folder / "checkpoint" / "concordant").last()
        process = start(folder, adapter, how, str(last.batch + 1 if last else 0))
    return how if process.wait() == -signal.SIGKILL else ""


def run(options: Options) -> Report:
    rng = Random(options.seed)
    died: Counter[tuple[str, str]] = Counter()
    failures: list[str] = []
    total = 0
    for adapter in ADAPTERS:
        with tempfile.TemporaryDirectory() as text:
            calm, hurt = Path(text) / "calm", Path(text) / "hurt"
            for folder in (calm, hurt):
                make_input(folder, options.seed)
            if start(calm, adapter).wait() != 0:
                failures.append(f"{adapter}: the undisturbed run failed")
                continue
            expected = lines(calm)
            total += len(expected)
            for number in range(KILL_COUNT):
                how = killed(hurt, adapter, rng, number)
                died[adapter, how] += 1
                options.progress(f"{adapter}: kills", number + 1, KILL_COUNT)
            if start(hurt, adapter).wait() != 0:
                failures.append(f"{adapter}: the last run failed")
            found = lines(hurt)
            if found != expected:
                failures.append(f"{adapter}: {len(found)} relations instead of {len(expected)}")
            count = sum(n for (one, how), n in died.items() if one == adapter and how)
            if count < KILL_COUNT - 2:
                failures.append(f"{adapter}: only {count} of {KILL_COUNT} runs died")
    table = Table("adapter", "when", "killed", title="Runs killed", title_justify="left")
    for (adapter, how), count in sorted(died.items()):
        table.add_row(adapter, how or "too late", str(count))
    if not total:
        failures.append("nothing was delivered, so nothing was shown")
    return Report(NAME, [table], [f"{total:,} relations compared"], failures)
