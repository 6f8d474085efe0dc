"""A Spark session that keeps quiet: for commands and tests, not for people who have their own.

Everything that the JVM and its Python workers print goes to a log file, chosen at their start,
because later nobody can take their streams away. Knows processes and streams, nothing of events.
"""

from __future__ import annotations

import atexit
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

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from concordant.errors import ConcordantError, UsageError
from concordant.spark.causes import Sentence, chain_of_text, of_log, sentence
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


FAILURES = (PySparkException, Py4JError, ConnectionError)
"""Errors of Spark, as they reach a driver."""


class RunFailed(ConcordantError):  # noqa: N818 - the name says what happened
    """A job of Spark ended badly: what happened, and what to try."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message}\n  try: {hint}" if hint else message)

    def kept_in(self, log: Path) -> RunFailed:
        """The same, and where all that Spark printed is."""
        return RunFailed(f"{self.message} (what Spark printed is in {log})", hint=self.hint)


def open_session(
    master: str = "local[*]",
    *,
    name: str = "concordant",
    options: Mapping[str, str] | None = None,
    log: Path | None = None,
    verbose: bool = False,
) -> Any:
    """A session of our own; its noise goes to `log` or nowhere, with `verbose` to the terminal."""
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
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):  # whole stacks as JSON
        PySparkLogger.getLogger(name).setLevel(logging.CRITICAL + 1)
    # An interrupted call is logged with its traceback, by the root logger.
    logging.getLogger().addFilter(lambda record: "py4j" not in record.pathname)
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    path = log or Path(os.devnull)
    try:
        with _streams_to(path):
            return _opened(builder, settings)
    except Exception as error:
        raise _not_started(error, path) from None


@contextlib.contextmanager
def session_of_command(
    master: str = "local[*]",
    *,
    name: str = "concordant",
    options: Mapping[str, str] | None = None,
    verbose: bool = False,
) -> Iterator[Any]:
    """A session for as long as a command works; errors of Spark come out as ours.

    What Spark printed is kept only if the run failed, and the error says where.
    """
    log = Path(tempfile.gettempdir()) / f"concordant-spark-{os.getpid()}.log"
    atexit.register(log.unlink, missing_ok=True)  # also where a second Ctrl-C leaves at once
    session = None
    try:
        session = open_session(master, name=name, options=options, log=log, verbose=verbose)
        yield session
    except (ConcordantError, *FAILURES) as error:
        told = explained(error)
        if isinstance(told, RunFailed) and log.exists():
            atexit.unregister(log.unlink)
            raise told.kept_in(log) from None
        raise told from None
    finally:
        if session is not None:
            with contextlib.suppress(Exception):
                session.stop()


def _not_started(error: Exception, log: Path) -> ConcordantError:
    """Why there is no session: what the JVM printed says it best, if it got so far."""
    if isinstance(error, ConcordantError):
        return error
    told = cause(error)
    if not told.hint:
        with contextlib.suppress(OSError):
            printed = of_log(log.read_text(errors="replace"))
            told = printed if printed.message else told
    if told.is_usage:
        return UsageError(told.message, hint=told.hint)
    return RunFailed(f"Spark did not start: {told.message}", hint=told.hint)


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


def cause(error: BaseException) -> Sentence:
    """What an error of Spark says happened."""
    return sentence(_messages(error))


def explained(error: BaseException) -> ConcordantError:
    """An error of a job as one of ours: the caller's input, or a run that failed."""
    if isinstance(error, ConcordantError):
        return error
    if isinstance(error, ConnectionError | Py4JNetworkError):
        return RunFailed(
            "Spark's own process has ended, most often because the system had no memory left",
            hint='give Spark less (spark.driver.memory), or use fewer cores: master = "local[2]"',
        )
    messages = _messages(error)
    for text in (str(error), *messages):
        found = _OF_A_WORKER.search(text)
        if found:
            return UsageError(found[1].strip(), hint=(found[2] or "").strip())
    told = sentence(messages)
    if told.is_usage:
        return UsageError(told.message, hint=told.hint, place=told.place)
    return RunFailed(f"the Spark job failed: {told.message}", hint=told.hint)


FAILURES = (PySparkException, Py4JError, ConnectionError)
"""Errors of Spark, as they reach a driver."""

_OF_A_WORKER = re.compile(r"concordant\.errors\.UsageError: (.+)\n(?:\s+try: (.+))?")
_CHAIN_MAX = 20


def _messages(error: BaseException) -> list[str]:
    """What an error and its causes say, outermost first."""
    found: list[str] = []
    origin = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    with contextlib.suppress(Exception):  # the JVM may be gone
        while origin is not None and len(found) < _CHAIN_MAX:
            found.append(origin.getMessage() or "")
            if "OutOfMemoryError" in origin.getClass().getName():
                found.append("OutOfMemoryError")
            origin = origin.getCause()
    return found or chain_of_text(str(error) or type(error).__name__)
