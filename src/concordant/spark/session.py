"""A Spark session that keeps quiet: for commands and tests, not for people who have their own.

Everything that the JVM and its Python workers print goes to a log file, chosen at their start,
because later nobody can take their streams away. Knows processes and streams, nothing of events.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from concordant.errors import ConcordantError, UsageError
from concordant.spark.state_store import PROVIDER, ROCKSDB

DEFAULTS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Rows of ours are shorter; of blobs, a worker holds no more at a time, and Spark asks the
    # system for several times as much anew in every task.
    "spark.sql.execution.arrow.maxBytesPerBatch": "4m",
    PROVIDER: ROCKSDB,
    # Spark formats the code that it generates by a regular expression that recurses: with the usual
    # stack a stream of many columns ends in a StackOverflowError now and then.
    "spark.driver.extraJavaOptions": "-Xss8m",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""Settings of a session that we start, where the caller says nothing else."""

OF_A_SESSION = (
    "spark.sql.session.timeZone",
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.execution.arrow.maxBytesPerBatch",
    PROVIDER,
)
"""Those that can be set from outside, through Spark Connect; the others are its server's."""


class RunFailed(ConcordantError):  # noqa: N818 - the name says what happened
    """A job of Spark ended badly: one sentence, and where the rest is told."""


def open_session(
    master: str = "local[*]",
    *,
    name: str = "concordant",
    options: Mapping[str, str] | None = None,
    log: Path | None = None,
    verbose: bool = False,
) -> Any:
    """A session of our own; its noise goes to `log`, or with `verbose` to the terminal."""
    builder: Any = SparkSession.builder.appName(name)
    settings = {**DEFAULTS, **(options or {})}
    if master.startswith("sc://"):
        if importlib.util.find_spec("grpc") is None:
            raise UsageError(
                f"'{master}' is a Spark Connect server, and what speaks to one is not installed",
                hint="pip install 'concordant[connect]'",
            )
        builder = builder.remote(master)
        settings = {**{key: DEFAULTS[key] for key in OF_A_SESSION}, **(options or {})}
    else:
        settings["spark.master"] = master
    if master.startswith(("local[", "local-cluster[")):
        # Tasks beyond the cores of one machine only cost; a cluster keeps Spark's own number.
        settings.setdefault("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
    if not master.startswith("local[") and "spark.driver.host" not in (options or {}):
        settings.pop("spark.driver.bindAddress", None)
        settings.pop("spark.driver.host", None)
    for key, value in settings.items():
        builder = builder.config(key, value)
    if verbose:
        return _opened(builder, settings)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger("pyspark").setLevel(logging.CRITICAL)
    # An interrupted call is logged with its traceback, by the root logger.
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    path = log or Path(tempfile.gettempdir()) / f"concordant-spark-{os.getpid()}.log"
    try:
        with _streams_to(path):
            return _opened(builder, settings)
    except Exception as error:
        raise RunFailed(f"Spark did not start: {cause(error)}") from None


def _opened(builder: Any, settings: Mapping[str, str]) -> Any:
    """A session on a JVM in a process group of its own: Ctrl-C is this process's to hear.

    Spark lets the JVM ignore it, but not its Python workers: they would die in their tasks.
    """
    with _own_interrupt():
        if "spark.master" in settings and SparkContext._gateway is None:
            conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
            gateway = launch_gateway(conf, {"process_group": 0})  # type: ignore[no-untyped-call]
            SparkContext._ensure_initialized(gateway=gateway, conf=conf)
        return builder.getOrCreate()


@contextlib.contextmanager
def _streams_to(path: Path) -> Iterator[None]:
    """The process's own output streams, for as long as the JVM inherits them, are a file."""
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        with path.open("ab") as file:
            for number in kept:
                os.dup2(file.fileno(), number)
            yield
    finally:
        for number, stream in kept.items():
            os.dup2(stream, number)
            os.close(stream)


@contextlib.contextmanager
def _own_interrupt() -> Iterator[None]:
    """Ctrl-C stays what it was: Spark's own handler calls the JVM in the middle of another call."""
    kept = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, kept)


_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Violation|Exception|Failed)): (.+)$")


def cause(error: BaseException) -> str:
    """The one line of an error of Spark that says what happened."""
    text = str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if "Traceback" in text:  # a worker's: its last own line is the reason
        told = [line for line in lines if _PYTHON_ERROR.match(line)]
        if told:
            return told[-1]
    return lines[0] if lines else type(error).__name__


def explained(error: BaseException) -> ConcordantError:
    """An error of a job as one of ours: the caller's input, or a run that failed."""
    text = str(error)
    found = re.search(r"concordant\.errors\.UsageError: (.+)\n(?:\s+try: (.+))?", text)
    if found:
        return UsageError(found[1].strip(), hint=(found[2] or "").strip())
    return RunFailed(f"the Spark job failed: {cause(error)}")
