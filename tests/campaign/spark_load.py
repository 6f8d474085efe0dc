"""Tables and streams that are hard to spread: a million keys, and one key with most of the events.

The relations must be those of the kernel alone. The memory of the driver and of the Python workers
must not follow the number of events: with three times as many it may grow by half at most. That of
the JVM is bounded by its heap. A stream shows what a key costs for good: the bytes of its state.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from rich.table import Table

from concordant.local import correlate
from tests.campaign.killing import ROOT
from tests.campaign.shape import Options, Report

NAME = "spark-load"

QUESTION = "up: T[1].v < T[2].v and T[2].v < T[3].v consume prefix partition by k within 1 min"
FILE_COUNT = 4
"""Of a stream, a micro-batch each."""


@dataclass(frozen=True)
class Load:
    """A table, or a stream of it."""

    name: str
    event_count: int
    key_count: int
    skew: float = 0.0
    """The share of one key."""
    kind: str = "table"

    def table(self, seed: int) -> Any:
        rng = np.random.default_rng(seed)
        keys = rng.integers(0, self.key_count, self.event_count)
        keys[rng.random(self.event_count) < self.skew] = 0
        return pa.table(
            {
                "source": pa.array(["s"] * self.event_count),
                "seq": np.arange(self.event_count),
                "time": np.arange(self.event_count) * 1_000,
                "k": keys,
                "v": rng.integers(0, 1_000, self.event_count),
            }
        )


LOADS = (
    Load("skew", 1_000_000, 1_000, 0.9),
    Load("skew, three times", 3_000_000, 1_000, 0.9),
    Load("a million keys", 1_000_000, 1_000_000),
    Load("a million keys, three times", 3_000_000, 1_000_000),
    Load("a stream of a million keys", 2_000_000, 1_000_000, kind="stream"),
)
GROWTH_MAX = 1.5
MEGABYTES_MAX = {"driver": 500, "JVM": 2_000, "worker": 1_000}
"""The JVM's heap is bounded by 1 GiB, and it needs some beside it."""


def run(options: Options) -> Report:
    headings = ("load", "events", "keys", "relations", *MEGABYTES_MAX, "state per key")
    table = Table(*headings, title="Loads (the most memory of a process, in MB)")
    failures: list[str] = []
    peaks: dict[str, dict[str, int]] = {}
    for number, load in enumerate(LOADS):
        with tempfile.TemporaryDirectory() as made:
            events = load.table(options.seed)
            expected = sorted(one.id for one in correlate({"T": events}, QUESTION))
            told, text = _told(load, events, Path(made))
            found = [] if text else pq.read_table(f"{made}/out").column("id").to_pylist()
        options.progress("loads", number + 1, len(LOADS))
        if text:
            failures.append(f"{load.name}: {text}")
            continue
        if sorted(found) != expected or not expected:
            failures.append(f"{load.name}: {len(found)} relations and not {len(expected)}")
        for who, most in MEGABYTES_MAX.items():
            if not 0 < told[who] <= most:
                failures.append(f"{load.name}: the {who} took {told[who]} MB, more than {most}")
        peaks[load.name] = told
        keys = pc.count_distinct(events.column("k")).as_py()
        shown = [f"{told[who]:,}" for who in MEGABYTES_MAX]
        state = f"{told['state'] / keys:.0f} B" if told["state"] else ""
        table.add_row(
            load.name, f"{load.event_count:,}", f"{keys:,}", f"{len(found):,}", *shown, state
        )
    for name, before in peaks.items():
        after = peaks.get(f"{name}, three times", before)
        for who in ("driver", "worker"):
            if after[who] > GROWTH_MAX * before[who]:
                failures.append(f"{name}: three times as many events, and the {who} took much more")
    return Report(NAME, [table], [], failures)


def _told(load: Load, events: Any, folder: Path) -> tuple[dict[str, int], str]:
    """What a run told of its memory, and what it said if it failed."""
    (folder / "question.sub").write_text(QUESTION)
    (folder / "in").mkdir()
    step = load.event_count // FILE_COUNT
    for number in range(FILE_COUNT):
        path = folder / "in" / f"{number}.parquet"
        pq.write_table(events.slice(number * step, step), path, row_group_size=100_000)
        os.utime(path, (1_000_000 + number, 1_000_000 + number))  # a stream takes the oldest first
    command = [sys.executable, "-m", "tests.spark.load_driver", str(folder), load.kind]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        return {}, done.stderr.strip()[-500:] or "it failed without a word"
    return json.loads(done.stdout), ""
