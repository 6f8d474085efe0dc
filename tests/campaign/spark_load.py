"""Tables that are hard to spread: a million keys, and one key with nine of ten events.

The relations must be those of the kernel alone, and the memory of the Python workers must not
follow the number of events: with three times as many it may grow by half at most.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.table import Table

from concordant.local import correlate as local
from concordant.spark import correlate
from concordant.spark.session import open_session
from tests.campaign.shape import Options, Report
from tests.processes import descendants, peak_megabytes

NAME = "spark-load"

QUESTION = "up: T[1].v < T[2].v and T[2].v < T[3].v consume prefix partition by k within 1 min"


@dataclass(frozen=True)
class Load:
    """A table."""

    name: str
    event_count: int
    key_count: int
    skew: float = 0.0
    """The share of one key."""

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
)
GROWTH_MAX = 1.5
MEGABYTES_MAX = 2_000
"""Of one Python worker."""


def run(options: Options) -> Report:
    table = Table("table", "events", "relations", "MB of a worker", title="Loads")
    failures: list[str] = []
    peaks: dict[str, int] = {}
    for number, load in enumerate(LOADS):
        with tempfile.TemporaryDirectory() as made:
            events = load.table(options.seed)
            pq.write_table(events, Path(made) / "events.parquet", row_group_size=100_000)
            expected = sorted(one.id for one in local({"T": events}, QUESTION))
            # A session for each, so that its workers begin anew.
            session = open_session("local[2]", options={"spark.sql.shuffle.partitions": "4"})
            frame = session.read.parquet(str(Path(made) / "events.parquet"))
            found = correlate(frame, QUESTION, topic="T").select("id").toArrow()
            peaks[load.name] = max(map(peak_megabytes, descendants("pyspark.daemon")), default=0)
            session.stop()
        if sorted(found.column("id").to_pylist()) != expected or not expected:
            failures.append(f"{load.name}: {found.num_rows} relations and not {len(expected)}")
        if not 0 < peaks[load.name] <= MEGABYTES_MAX:
            failures.append(f"{load.name}: a worker took {peaks[load.name]} MB")
        row = (f"{load.event_count:,}", f"{found.num_rows:,}", f"{peaks[load.name]:,}")
        table.add_row(load.name, *row)
        options.progress("tables", number + 1, len(LOADS))
    for name, peak in peaks.items():
        if peaks.get(f"{name}, three times", 0) > GROWTH_MAX * peak:
            failures.append(f"{name}: three times as many events took much more memory")
    return Report(NAME, [table], [], failures)
