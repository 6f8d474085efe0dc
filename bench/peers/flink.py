"""A Flink session seen from this environment: queries by name, seconds back.

The session is `flink_session.py`, a child process; its JVM starts with the first query and stays.
"""

from __future__ import annotations

import csv
import json
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.peers.quotes import Triple

MODES = ("streaming", "batch")

_SCRIPT = Path(__file__).with_name("flink_session.py")


class FlinkError(Exception):
    """Flink refused a query or died."""


@dataclass(frozen=True)
class Job:
    """What one job took."""

    seconds: float
    """Net runtime as the JobExecutionResult tells it: no planning, no start of the cluster."""
    wall_seconds: float
    cpu_seconds: float
    """Of the whole JVM, the start of the cluster included."""


class Flink:
    """One JVM that answers queries until it is closed."""

    def __init__(self, python: str) -> None:
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the child
        self._child = subprocess.Popen(
            [python, str(_SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def __enter__(self) -> Flink:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._child.stdin
        self._child.stdin.close()
        try:
            self._child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def version(self) -> str:
        return str(self._ask(query="version")["version"])

    def scan(self, path: Path, *, mode: str, parallelism: int) -> Job:
        """Read the file and drop its rows."""
        return self._job(query="scan", path=path, mode=mode, parallelism=parallelism)

    def match(self, path: Path, *, mode: str, parallelism: int) -> Job:
        """Read the file, match, and drop the matches."""
        return self._job(query="match", path=path, mode=mode, parallelism=parallelism)

    def triples(self, path: Path, *, mode: str, parallelism: int) -> list[Triple]:
        """The matches themselves, sorted."""
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "rows")
            self._ask(query="rows", path=path, mode=mode, parallelism=parallelism, out=out)
            found = []
            for part in sorted(out.glob("part-*")):
                with part.open(newline="") as lines:
                    found += [(s, int(a), int(b), int(c)) for s, a, b, c in csv.reader(lines)]
        return sorted(found)

    def _job(self, **request: Any) -> Job:
        return Job(**self._ask(**request))

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self._child.stdin and self._child.stdout
        absolute = {
            key: str(value.resolve()) if isinstance(value, Path) else value
            for key, value in request.items()
        }
        try:
            self._child.stdin.write(json.dumps(absolute) + "\n")
            self._child.stdin.flush()
            line = self._child.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._log.seek(0)
            raise FlinkError(f"the Flink session ended: {self._log.read()[-2000:]}")
        reply: dict[str, Any] = json.loads(line)
        if "error" in reply:
            raise FlinkError(reply["error"])
        return reply
