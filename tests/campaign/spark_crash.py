"""Kill -9 of a streaming run, again and again: none lost, none twice.

A run over a folder of files is killed at random moments and at the worst ones (results written and
nothing committed; committed by us and not yet by Spark), each time started again from what it left,
until it ends. Its JSON Lines, all files in order, must be those of a run that nobody disturbed. A
campaign in which fewer runs died than were to be killed fails.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from tests.campaign.killing import OPTIONS, failure, killed, killed_in, lines
from tests.campaign.shape import Options, Report

NAME = "spark-crash"

AT_END = "sink of the end"
ADAPTERS = ("files", "store")
FILE_COUNT = 40
ROWS_PER_FILE = 150
KILL_COUNT = 22

PIPELINE = """
[question]
subscriptions = '''
up: T[1].v < T[2].v and T[2].v < T[3].v consume matched partition by k within 1 s
pair: T then U and T.v = U.v consume slide partition by k within 500 ms
any: U[1].v > U[2].v match recent consume suffix
'''
[[source]]
kind = "parquet"
path = "in"
[stream]
checkpoint = "checkpoint"
release = "frontier"
at_end = "{at_end}"
adapter = "{adapter}"
buckets = 4
[[sink]]
kind = "jsonl"
path = "out"
[spark]
master = "local[2]"
{options}
"""


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


def run(options: Options) -> Report:
    rng = Random(options.seed)
    died: Counter[tuple[str, str]] = Counter()
    failures: list[str] = []
    total = 0
    for adapter in ADAPTERS:
        with tempfile.TemporaryDirectory() as made:
            calm, hurt = Path(made) / "calm", Path(made) / "hurt"
            at_end = "release" if adapter == "files" else "wait"
            for folder in (calm, hurt):
                make_input(folder, options.seed)
                text = PIPELINE.format(adapter=adapter, at_end=at_end, options=OPTIONS)
                (folder / "pipeline.toml").write_text(text)
            if text := failure(calm):
                failures.append(f"{adapter}: the undisturbed run failed: {text}")
                continue
            expected = lines(calm)
            total += len(expected)
            for number in range(KILL_COUNT):
                how = killed(hurt, rng, number)
                died[adapter, how] += 1
                options.progress(f"{adapter}: kills", number + 1, KILL_COUNT)
            if adapter == "files":  # the end of the input is a step of its own, after all files
                for how in ("sink", "commit"):
                    died[adapter, killed_in(hurt, how, FILE_COUNT) and f"{how} of the end"] += 1
            if text := failure(hurt):
                failures.append(f"{adapter}: the last run failed: {text}")
            found = lines(hurt)
            if found != expected:
                failures.append(f"{adapter}: {len(found)} relations instead of {len(expected)}")
            count = sum(n for (one, how), n in died.items() if one == adapter and how)
            if count < KILL_COUNT - 2 or (adapter == "files" and not died[adapter, AT_END]):
                failures.append(f"{adapter}: only {count} of {KILL_COUNT} runs died")
    table = Table("adapter", "when", "killed", title="Runs killed", title_justify="left")
    for (adapter, how), count in sorted(died.items()):
        table.add_row(adapter, how or "too late", str(count))
    if not total:
        failures.append("nothing was delivered, so nothing was shown")
    return Report(NAME, [table], [f"{total:,} relations compared"], failures)
