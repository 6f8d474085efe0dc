"""One large table or stream in a process of its own, which tells how much memory it took.

    python -m tests.spark.load_driver FOLDER [stream]

Reads the Parquet files of FOLDER/in through the JVM, asks `question.sub`, writes the ids of the
relations to FOLDER/out and prints one line of JSON: megabytes of this process, of its JVM and of
its largest worker, and the bytes of state that a stream keeps.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from concordant.spark import correlate
from concordant.spark.correlate import relations
from concordant.spark.session import open_session
from concordant.spark.streaming import open_stream
from tests.processes import descendants, peak_megabytes

OPTIONS = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "4"}


def table(session: Any, folder: Path, question: str) -> int:
    frame = session.read.parquet(str(folder / "in"))
    found = correlate(frame, question, topic="T", scan="jvm").select("id")
    found.write.parquet(str(folder / "out" / "0"))
    return 0


def stream(session: Any, folder: Path, question: str) -> int:
    schema = session.read.parquet(str(folder / "in")).schema
    reader = session.readStream.schema(schema).option("maxFilesPerTrigger", 1)

    def deliver(answers: Any, batch: int) -> None:
        relations(answers).select("id").write.parquet(str(folder / "out" / str(batch)))

    asked = open_stream(
        reader.parquet(str(folder / "in")),
        question,
        topic="T",
        release="frontier",
        checkpoint=folder / "checkpoint",
        deliver=deliver,
    )
    asked.start({"availableNow": True}).awaitTermination()
    asked.finish()
    last = asked.checkpoint.last()
    assert last is not None
    return last.counts["state_bytes"]


def main(folder: Path, kind: str = "table") -> None:
    session = open_session("local[2]", options=OPTIONS, log=folder / "spark.log")
    question = (folder / "question.sub").read_text()
    state = (stream if kind == "stream" else table)(session, folder, question)
    told = {
        "driver": peak_megabytes(os.getpid()),
        "JVM": max(map(peak_megabytes, descendants("SparkSubmit"))),
        "worker": max(map(peak_megabytes, descendants("pyspark.daemon"))),
        "state": state,
    }
    print(json.dumps(told), flush=True)
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
