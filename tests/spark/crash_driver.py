"""One run of a streaming pipeline in a process of its own, which may be told when to die.

    python -m tests.spark.crash_driver FOLDER [WHERE STEP]

It runs the `pipeline.toml` of the folder and prints a line when its session is up. WHERE is `sink`
(results are written, nothing is committed) or `commit` (we have committed, Spark has not). The
process kills itself and its JVM there, in the given step; without WHERE it runs to the end.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from concordant.spark.checkpoint import Checkpoint
from concordant.spark.pipeline import read_pipeline
from concordant.spark.run import run_pipeline
from concordant.spark.session import open_session
from tests.processes import kill_with_descendants


def dying(where: str, step: int) -> None:
    """Plant the end of the process at a place."""
    own = Checkpoint.commit

    def commit(self: Checkpoint, done: Any) -> None:
        if where == "sink" and done.step == step:
            kill_with_descendants(os.getpid())
        own(self, done)
        if where == "commit" and done.step == step:
            kill_with_descendants(os.getpid())

    Checkpoint.commit = commit  # type: ignore[method-assign]


def main(folder: Path) -> None:
    pipeline = read_pipeline(folder / "pipeline.toml")
    session = open_session(
        pipeline.spark.master, options=pipeline.session_options(), log=folder / "spark.log"
    )
    print("up", flush=True)
    run_pipeline(
        pipeline,
        session,
        generate=lambda source: source.path,
        show=lambda rows: None,
        told=lambda line: None,
    )
    session.stop()


if __name__ == "__main__":
    if len(sys.argv) > 2:
        dying(sys.argv[2], int(sys.argv[3]))
    main(Path(sys.argv[1]))
