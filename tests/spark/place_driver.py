"""Spark equals the kernel at one place, in a process of its own: tables, streams, and with faults.

    python -m tests.spark.place_driver MASTER FAULT FOLDER

MASTER is Spark's, or the address of a Spark Connect server (`sc://…`). FAULT is `none`, `retry`
(the first attempt of every task dies when its work is done), `speculation` (the first attempt of
the first task of a stage is slow) or `executor` (one is killed after every second micro-batch).
Prints one line of JSON for each comparison; in FOLDER every fault leaves a file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from pyspark import TaskContext

from concordant.spark import batch, correlate, in_order, state_files, state_store
from concordant.spark.pipeline import read_pipeline
from concordant.spark.run import run_pipeline
from concordant.spark.session import open_session
from tests.processes import descendants
from tests.spark.every_policy import QUESTION, ROWS, expected
from tests.spark.test_streaming import SCHEMA, Run, write

ROOT = Path(__file__).resolve().parents[2]
SLOW_SECONDS = 4.0

PIPELINE = """
[question]
subscriptions = "question.sub"
[[source]]
kind = "parquet"
path = "in"
[[sink]]
kind = "jsonl"
path = "out"
[spark]
master = "{master}"
"""

Task = Callable[[Iterable[Any]], Iterator[Any]]


def opened(master: str, folder: Path, fault: str) -> Any:
    if _is_connect(master):
        return open_session(master, options={"spark.sql.shuffle.partitions": "2"})
    options = {
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-Xss8m -XX:TieredStopAtLevel=1",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.executor.memory": "900m",
        "spark.executorEnv.PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
        "spark.sql.shuffle.partitions": "3",
        "spark.local.dir": str(folder / "local"),
    }
    if master != "local[2]":  # what Spark generates and compiles is the same everywhere
        options |= {
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        }
    if fault == "speculation":
        options |= {
            "spark.speculation": "true",
            "spark.speculation.interval": "50ms",
            "spark.speculation.minTaskRuntime": "200ms",
            "spark.speculation.quantile": "0.1",
            "spark.speculation.multiplier": "1.1",
        }
    return open_session(master, options=options, log=folder / "spark.log")


def _is_connect(master: str) -> bool:
    return master.startswith("sc://")


def plant(fault: str, folder: Path) -> None:
    """Break the tasks of tables and of streams, wherever the state is."""
    for module, name in (
        (batch, "task"),
        (state_files, "packing"),
        (state_files, "_task"),
        (state_store, "packing"),
    ):
        own = getattr(module, name)

        def made(*arguments: Any, own: Any = own, **options: Any) -> Task:
            return broken(own(*arguments, **options), fault, str(folder))

        setattr(module, name, made)
    # In the same task as the operator that holds the state, after it.
    state_store._unpack = broken(state_store._unpack, fault, str(folder))


def broken(inner: Task, fault: str, folder: str) -> Task:
    def run(batches: Iterable[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        first = context.attemptNumber() == 0
        name = f"{fault if first else 'again'}-{uuid.uuid4()}"
        if fault == "speculation" and first and context.partitionId() == 0:
            time.sleep(SLOW_SECONDS)  # slow is the fault
        answers = list(inner(batches))
        (Path(folder) / name).touch()
        if fault == "retry" and first:
            raise RuntimeError("this attempt dies when its work is done")
        yield from answers

    return run


class Killing(Run):
    """A stream whose micro-batches lose an executor, every second time before they deliver."""

    def __init__(self, *arguments: Any, faults: Path, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._faults = faults

    def deliver(self, answers: Any, batch: int) -> None:
        if batch % 2 == 0 and (found := descendants("CoarseGrainedExecutorBackend")):
            os.kill(Random(batch).choice(found), signal.SIGKILL)
            (self._faults / f"executor-{batch}").touch()
        super().deliver(answers, batch)


def table(spark: Any) -> tuple[str, bool, int]:
    found = in_order(correlate(spark.createDataFrame(ROWS, SCHEMA), QUESTION))
    rows = found.select("id", "events.id").collect()
    return "table", [(one[0], tuple(one[1])) for one in rows] == expected(), len(rows)


def pipeline(spark: Any, folder: Path, master: str) -> tuple[str, bool, int]:
    """The table by a pipeline file, down to its JSON Lines."""
    (folder / "question.sub").write_text(QUESTION)
    (folder / "pipeline.toml").write_text(PIPELINE.format(master=master))
    run_pipeline(
        read_pipeline(folder / "pipeline.toml"),
        spark,
        generate=lambda source: source.path,
        show=lambda rows: None,
        told=lambda line: None,
    )
    lines = (folder / "out" / f"{0:020d}.jsonl").read_text().splitlines()
    found = [tuple(json.loads(line)["events"]) for line in lines]
    return "pipeline", found == [ids for _, ids in expected()], len(found)


def stream(spark: Any, folder: Path, fault: str) -> tuple[str, bool, int]:
    if fault == "executor":
        run: Run = Killing(spark, folder, QUESTION, faults=folder)
    else:
        run = Run(spark, folder, QUESTION)
    found = run.go()
    return "stream, state in files", found == sorted(expected()), len(found)


def own_store(spark: Any, folder: Path) -> tuple[str, bool, int]:
    """The same stream with its state in Spark's store; what waits at the end stays there."""
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    found = correlate(
        reader.parquet(str(folder / "in")), QUESTION, release="frontier", bucket_count=2
    )
    query = (
        found.writeStream.format("memory")
        .queryName("own_store")
        .option("checkpointLocation", str(folder / "own_store"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.sql("select id, events.id from own_store").collect()
    frontier = min(max(r["time"] for r in ROWS if r["source"] == source) for source in "ab")
    wanted = expected([row for row in ROWS if row["time"] < frontier])
    found = sorted((one[0], tuple(one[1])) for one in rows)
    return "stream, state in Spark's store", found == sorted(wanted), len(found)


def main(master: str, fault: str, folder: Path) -> None:
    spark = opened(master, folder, fault)
    if fault in ("retry", "speculation"):
        plant(fault, folder)

    def tell(what: str, equal: bool, count: int) -> None:
        print(json.dumps({"what": what, "equal": equal, "relations": count}), flush=True)

    write(folder / "in", 40, 80, 120, 160, 200, rows=ROWS)
    if fault != "executor":
        tell(*table(spark))
    if _is_connect(master):
        tell(*pipeline(spark, folder, master))
    else:
        tell(*stream(spark, folder, fault))
    if fault != "executor":
        tell(*own_store(spark, folder))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
