"""How long a fresh interpreter takes: import, first use with compiled loops, first use without."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

from bench.measure import Timing, interleaved
from bench.result import Column, Goal, Row, Section, Size

COLD_RUNS = 2

IMPORT = "import concordant"
FIRST_USE = """
from concordant.correlate.kernel import Kernel
from concordant.correlate.plan import compile_plan
from concordant.correlate.columns import Batch
from concordant.language import check, parse
from concordant.model.event import Event
from concordant.model.kind import Kind
from concordant.model.topic import Topic
topics = {name: Topic(name, {"key": Kind.INT, "x": Kind.FLOAT}) for name in "AB"}
plan = compile_plan(check(parse("A.x < B.x and A then B partition by key"), topics), topics)
events = [Event(name, "s", i, i, {"key": 1, "x": float(i)}) for i, name in enumerate("AB")]
assert len(Kernel(plan).step(Batch.of(events, topics.values()))) == 1
"""


def _fresh(program: str, cache: str | None = None) -> float:
    """Seconds that a program takes in a new interpreter, from its first line to its last."""
    timed = (
        f"from time import perf_counter\nstart = perf_counter()\n{program}\n"
        "print(perf_counter() - start)"
    )
    environment = dict(os.environ)
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    done = subprocess.run(
        [sys.executable, "-c", timed], env=environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def _cold() -> float:
    with tempfile.TemporaryDirectory() as cache:
        return _fresh(FIRST_USE, cache)


def run(size: Size) -> Section:
    """Import, warm and cold first use, each in a fresh interpreter."""
    _fresh(FIRST_USE)
    cases: dict[str, Callable[[], float]] = {
        "numpy alone": lambda: _fresh("import numpy"),
        "import concordant": lambda: _fresh(IMPORT),
        "first relation, loops compiled before": lambda: _fresh(FIRST_USE),
    }
    taken = interleaved(max(5, size.rounds), cases)
    # Compiling takes the better part of a minute: few runs, and none where all must be quick.
    if size.name == "full":
        taken["first relation, empty cache"] = Timing(tuple(_cold() for _ in range(COLD_RUNS)))
    rows: list[Row] = [
        {
            "what": name,
            "seconds": timing.median,
            "spread": timing.spread if len(timing.seconds) > 1 else None,
            "runs": len(timing.seconds),
        }
        for name, timing in taken.items()
    ]
    return Section(
        "startup",
        "Start-up",
        "Seconds inside a fresh interpreter (its own start left out). First relation: import, "
        "parse, plan, kernel, one step of two events. With an empty cache all loops are compiled; "
        "this happens once per installation and version.",
        (
            Column("what", "what"),
            Column("seconds", "time", "seconds"),
            Column("spread", "spread", "percent"),
            Column("runs", "runs", "count"),
        ),
        rows,
        [
            Goal(
                "first relation in a fresh interpreter",
                "quick",
                ", ".join(Column("seconds", "", "seconds").text(row) for row in rows[2:]),
            )
        ],
    )
