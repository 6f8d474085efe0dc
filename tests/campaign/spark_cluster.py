"""Spark equals the kernel wherever it runs, and whatever becomes of tasks and executors.

A random case of every policy, a table and a stream cut at random, asked with all of them: on one
core and on two, `local-cluster` (several processes), a standalone master with two workers, and
through Spark Connect; then with tasks that die when their work is done, with speculation, and with
executors killed by `kill -9`. A fault that happened too seldom fails the campaign.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pyspark
from rich.table import Table

from concordant.spark.session import cause
from tests.campaign.killing import ROOT
from tests.campaign.shape import Options, Report

NAME = "spark-cluster"

STANDALONE = "standalone"
CONNECT = "connect"
LOCAL_CLUSTER = "local-cluster[2,1,1024]"
RUNS = (
    ("local[1]", "none"),
    ("local[2]", "none"),
    (LOCAL_CLUSTER, "none"),
    (STANDALONE, "none"),
    (CONNECT, "none"),
    ("local[2,4]", "retry"),
    (LOCAL_CLUSTER, "retry"),
    (STANDALONE, "speculation"),
    (LOCAL_CLUSTER, "executor"),
)
"""Where, and which fault; `local[2,4]` tries a task up to four times.

Spark never runs the copy of a slow task on the host of the first attempt, and `local-cluster` has
one host only: speculation is shown on a master whose workers have addresses of their own.
"""

QUICK_TO_START = "-Xss8m -XX:TieredStopAtLevel=1"
"""The stack of our own sessions, and no second compiler, which never pays here."""

EVIDENCE = {"retry": ("retry-*", 20), "speculation": ("again-*", 1), "executor": ("executor-*", 20)}
"""Files that show that a fault happened, and how often it has to happen at least; a copy of a slow
task is one that speculation started."""


def run(options: Options) -> Report:
    failures: list[str] = []
    table = Table("where", "fault", "happened", "comparisons", "relations", title="Places")
    for number, (master, fault) in enumerate(RUNS):
        seed = options.seed + number
        with tempfile.TemporaryDirectory() as made, _place(master, Path(made)) as url:
            told, text = _told(url, fault, Path(made), seed)
            pattern, wanted = EVIDENCE.get(fault, ("none", 0))
            faults = len(list(Path(made).glob(pattern)))
        where = f"{master}, {fault}, seed {seed}"
        failures += [
            f"{where}: {one['what']} differs: lost {one['lost']}, more {one['more']}"
            for one in told
            if not one["equal"]
        ]
        if text:
            failures.append(f"{where}: {text}")
        if faults < wanted:
            failures.append(f"{where}: the fault happened {faults} times, not {wanted}")
        relations = sum(one["relations"] for one in told)
        if not relations:
            failures.append(f"{where}: nothing was delivered, so nothing was shown")
        shown = str(faults) if fault != "none" else ""
        table.add_row(master, fault, shown, str(len(told)), f"{relations:,}")
        options.progress("places", number + 1, len(RUNS))
    return Report(NAME, [table], [], failures)


def _told(url: str, fault: str, folder: Path, seed: int) -> tuple[list[dict[str, Any]], str]:
    """The comparisons of one run, and what it said if it failed."""
    command = [sys.executable, "-m", "tests.spark.place_driver", url, fault, str(folder)]
    command.append(str(seed))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    told = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return told, cause(RuntimeError(done.stderr)).message if done.returncode else ""


@contextlib.contextmanager
def _place(master: str, folder: Path) -> Iterator[str]:
    """The URL of a master; what has to be started for it lives as long as the block."""
    port = str(_free_port())
    deploy = "org.apache.spark.deploy"
    with contextlib.ExitStack() as stack:
        if master == STANDALONE:
            master = f"spark://127.0.0.1:{port}"
            head = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", port]
            stack.enter_context(_daemon([*head, "--webui-port", "0"], "New state: ALIVE", folder))
            for number in range(2):
                host = f"127.0.0.{number + 1}"
                worker = [f"{deploy}.worker.Worker", "--host", host, "--cores", "1"]
                worker += ["--memory", "1g"]
                work = ["--webui-port", "0", "--work-dir", str(folder / f"work{number}"), master]
                ready = "Successfully registered with master"
                stack.enter_context(_daemon([*worker, *work], ready, folder))
        elif master == CONNECT:
            master = f"sc://127.0.0.1:{port}"
            server = "org.apache.spark.sql.connect.service.SparkConnectServer"
            bound = ["--conf", f"spark.connect.grpc.binding.port={port}", "spark-internal"]
            submit = [f"{deploy}.SparkSubmit", "--master", "local[2]", "--class", server]
            submit += ["--driver-java-options", QUICK_TO_START, *bound]
            stack.enter_context(_daemon(submit, "Spark Connect server started", folder))
        yield master


@contextlib.contextmanager
def _daemon(arguments: list[str], ready: str, folder: Path) -> Iterator[None]:
    """A process of Spark that has said that it is ready."""
    script = Path(pyspark.__file__).parent / "bin" / "spark-class"
    process = subprocess.Popen(
        [str(script), *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": QUICK_TO_START,
            "PYSPARK_PYTHON": sys.executable,
        },
    )
    try:
        assert process.stderr is not None
        if not any(ready in line for line in process.stderr):
            raise RuntimeError(f"{arguments[0]} did not start")
        # Whoever does not read on makes it wait as soon as the pipe is full.
        Thread(target=deque, args=(process.stderr, 0), daemon=True).start()
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
