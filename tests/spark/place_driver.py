"""Spark equals the kernel at one place, in a process of its own: tables, streams, and with faults.

    python -m tests.spark.place_driver MASTER FAULT FOLDER SEED

MASTER is Spark's, or the address of a Spark Connect server (`sc://…`). FAULT is `none`, `retry`
(the first attempt of every task dies when its work is done), `speculation` (the first attempt of
the first task of a stage is slow) or `executor` (one is killed in every micro-batch: before its
tasks, in the middle of them, or when its results are written and nothing is committed). SEED makes
the events, the cuts into micro-batches and the moments. Prints one line of JSON for each
comparison; in FOLDER every fault leaves a file.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from threading import Thread
from typing import Any

from pyspark import TaskContext

from concordant.spark import batch, correlate, in_order, state_files, state_store
from concordant.spark.pipeline import read_pipeline
from concordant.spark.release import release_of
from concordant.spark.run import run_pipeline
from concordant.spark.session import open_session
from tests.buckets import kernel_summaries, ordered
from tests.campaign.compare import case_of
from tests.generators import ALL_POLICIES
from tests.processes import descendants
from tests.spark.every_policy import QUESTION, ROW_COUNT, expected, rows_of
from tests.spark.frames import collected, frames
from tests.spark.test_streaming import SCHEMA, Run, write

ROOT = Path(__file__).resolve().parents[2]
SLOW_SECONDS = 4.0
FILE_COUNT = 6
FILE_COUNT_OF_KILLS = 24
RELEASE = release_of("frontier", sources=("a", "b"))
"""The first micro-batch may have heard of one source only."""

MOMENTS = ("before", "meanwhile", "after")

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
    if fault == "executor":  # many are meant to die
        options["spark.deploy.maxExecutorRetries"] = "-1"
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
    """A stream that loses an executor in every micro-batch, at a moment drawn by chance."""

    def __init__(self, *arguments: Any, faults: Path, chance: Random, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._faults = faults
        self._chance = chance
        self._begun = faults / "begun"
        os.mkfifo(self._begun)
        own, begun = state_files._task, str(self._begun)

        def made(*arguments: Any, **options: Any) -> Task:
            return telling(own(*arguments, **options), begun)

        state_files._task = made

    def deliver(self, answers: Any, batch: int) -> None:
        moment = self._chance.choice(MOMENTS)
        if moment == "before":
            self.kill(moment)
        killer = Thread(target=self.kill_when_begun) if moment == "meanwhile" else None
        if killer is not None:
            killer.start()
        super().deliver(answers, batch)
        if killer is not None:
            tell_begun(str(self._begun))  # if no task was heard, nobody waits for ever
            killer.join()
        if moment == "after":
            self.kill(moment)

    def kill_when_begun(self) -> None:
        self._begun.read_bytes()  # until a task has opened the pipe and closed it
        self.kill("meanwhile")

    def kill(self, moment: str) -> None:
        if found := descendants("CoarseGrainedExecutorBackend"):
            os.kill(self._chance.choice(found), signal.SIGKILL)
            (self._faults / f"executor-{moment}-{uuid.uuid4()}").touch()


def telling(inner: Task, begun: str) -> Task:
    """A task that says when its first rows have come."""

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        def heard() -> Iterator[Any]:
            for number, one in enumerate(batches):
                if not number:
                    tell_begun(begun)
                yield one

        return inner(heard())

    return run


def tell_begun(pipe: str) -> None:
    """Wake whoever waits at a pipe; nobody does most of the time."""
    with suppress(OSError):
        os.close(os.open(pipe, os.O_WRONLY | os.O_NONBLOCK))


Comparison = tuple[str, list[Any], list[Any]]
"""What was compared, what was found and what the kernel gives."""


def cases(spark: Any, seed: int) -> Comparison:
    """A random case of every policy, as tables."""
    found, wanted = [], []
    for policy in ALL_POLICIES:
        case = ordered(case_of(seed, policy, seed))
        wanted += [(str(policy), one) for one in kernel_summaries(case)]
        answers = collected(correlate(frames(spark, case), case.subscriptions))
        found += [(str(policy), one) for one in answers]
    return "a random case of every policy", found, wanted


def table(spark: Any, seed: int) -> Comparison:
    rows = rows_of(seed)
    answers = in_order(correlate(spark.createDataFrame(rows, SCHEMA), QUESTION))
    found = [(one[0], tuple(one[1])) for one in answers.select("id", "events.id").collect()]
    return "table", found, expected(rows)


def pipeline(spark: Any, folder: Path, master: str, seed: int) -> Comparison:
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
    return "pipeline", found, [ids for _, ids in expected(rows_of(seed))]


def stream(spark: Any, folder: Path, fault: str, seed: int) -> Comparison:
    if fault == "executor":
        chance = Random(seed)
        run: Run = Killing(spark, folder, QUESTION, faults=folder, chance=chance, release=RELEASE)
    else:
        run = Run(spark, folder, QUESTION, release=RELEASE)
    return "stream, state in files", run.go(), sorted(expected(rows_of(seed)))


def own_store(spark: Any, folder: Path, seed: int) -> Comparison:
    """The same stream with its state in Spark's store; what waits at the end stays there."""
    rows = rows_of(seed)
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    answers = correlate(
        reader.parquet(str(folder / "in")), QUESTION, release=RELEASE, bucket_count=2
    )
    query = (
        answers.writeStream.format("memory")
        .queryName("own_store")
        .option("checkpointLocation", str(folder / "own_store"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    delivered = spark.sql("select id, events.id from own_store").collect()
    frontier = min(max(r["time"] for r in rows if r["source"] == source) for source in "ab")
    wanted = expected([row for row in rows if row["time"] < frontier])
    found = sorted((one[0], tuple(one[1])) for one in delivered)
    return "stream, state in Spark's store", found, sorted(wanted)


def told(what: str, found: list[Any], wanted: list[Any]) -> dict[str, Any]:
    """A comparison as a line, with some of what was lost and of what was too much."""
    line: dict[str, Any] = {"what": what, "equal": found == wanted, "relations": len(found)}
    if found != wanted:
        line["lost"] = list(map(str, (Counter(wanted) - Counter(found)).elements()))[:3]
        line["more"] = list(map(str, (Counter(found) - Counter(wanted)).elements()))[:3]
    return line


def main(master: str, fault: str, folder: Path, seed: int) -> None:
    spark = opened(master, folder, fault)
    if fault in ("retry", "speculation"):
        plant(fault, folder)

    def tell(compared: Comparison) -> None:
        print(json.dumps(told(*compared)), flush=True)

    count = FILE_COUNT_OF_KILLS if fault == "executor" else FILE_COUNT
    cuts = sorted(Random(seed).sample(range(1, ROW_COUNT), count - 1))
    write(folder / "in", *cuts, rows=rows_of(seed))
    if fault == "none":
        tell(cases(spark, seed))
    if fault != "executor":
        tell(table(spark, seed))
    if _is_connect(master):
        tell(pipeline(spark, folder, master, seed))
    else:
        tell(stream(spark, folder, fault, seed))
    if fault != "executor":
        tell(own_store(spark, folder, seed))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
