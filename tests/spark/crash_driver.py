"""One run of a streaming pipeline in a process of its own, which may be told when to die.

    python -m tests.spark.crash_driver FOLDER ADAPTER [WHERE BATCH]

It prints a line when its session is up. WHERE is `sink` (results are written, nothing is committed)
or `commit` (we have committed, Spark has not). The process kills itself and its JVM there, in the
given micro-batch; without WHERE it runs to the end.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from concordant.spark.checkpoint import Checkpoint
from concordant.spark.pipeline import read_pipeline
from concordant.spark.run import run_pipeline
from concordant.spark.session import open_session

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
"""


def dying(where: str, batch: int) -> None:
    """Plant the end of the process at a place."""
    own = Checkpoint.commit

    def die() -> None:
        os.killpg(os.getpgid(0), signal.SIGKILL)

    def commit(self: Checkpoint, done: Any) -> None:
        if where == "sink" and done.batch == batch:
            die()
        own(self, done)
        if where == "commit" and done.batch == batch:
            die()

    Checkpoint.commit = commit  # type: ignore[method-assign]


def main(folder: Path, adapter: str) -> None:
    at_end = "release" if adapter == "files" else "wait"
    (folder / "pipeline.toml").write_text(PIPELINE.format(adapter=adapter, at_end=at_end))
    pipeline = read_pipeline(folder / "pipeline.toml")
    options = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    session = open_session("local[2]", options=options, log=folder / "spark.log")
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
    if len(sys.argv) > 3:
        dying(sys.argv[3], int(sys.argv[4]))
    main(Path(sys.argv[1]), sys.argv[2])
