"""The command line inside the test's process, and as a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from concordant.cli.main import main

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name != "FORCE_COLOR"},
    "PYTHONPATH": str(ROOT / "src"),
    "COLUMNS": "100",
}
# A process started in the background of a script ignores SIGINT, and so do its children: undo it.
PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
    "from concordant.cli.main import main; sys.exit(main())"
)
COMMAND = [sys.executable, "-W", "error", "-c", PROGRAM]


class Done(NamedTuple):
    """A command that ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Done]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command in an empty folder, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    def call(*arguments: str) -> Done:
        capsys.readouterr()
        code = main(arguments)
        return Done(code, *capsys.readouterr())

    return call


@pytest.fixture
def spawn(tmp_path: Path) -> Run:
    """Run a command in an empty folder, as a process of its own."""

    def call(*arguments: str, env: Sequence[tuple[str, str]] = ()) -> Done:
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=tmp_path,
            env={**ENVIRONMENT, **dict(env)},
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=60,
        )
        return Done(done.returncode, done.stdout, done.stderr)

    return call
