"""What peers need and Concordant does not: Java, and PyFlink in an environment of its own.

Whatever is missing is one sentence (`Unavailable`), never a traceback.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

FLINK = "2.3.0"
JAVA_MIN = 17
_VENV = Path(".venv-flink")


class Unavailable(Exception):  # noqa: N818 - it says what is wrong with the machine, not with us
    """The benchmark cannot run here; the text says why and what to do."""


def java_program() -> str:
    """The Java that JAVA_HOME names, or the one in the path."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else "java"


def java() -> str:
    """The version of that Java."""
    try:
        shown = subprocess.run(
            [java_program(), "-version"], capture_output=True, text=True, check=False
        )
    except OSError:
        shown = None
    found = re.search(r'version "((?:1\.)?(\d+)[^"]*)"', shown.stderr) if shown else None
    if found is None or int(found[2]) < JAVA_MIN:
        raise Unavailable(
            f"Found {'Java ' + found[1] if found else 'no Java'}, and Java {JAVA_MIN} or later is "
            "needed: install one (Debian and Ubuntu: openjdk-17-jdk-headless) or set JAVA_HOME."
        )
    return found[1]


def flink_python() -> str:
    """The Python of the environment with PyFlink, which is made if it is not there."""
    python = str(_VENV / "bin" / "python")
    if _installed(python):
        return python
    print(f"installing apache-flink {FLINK} into {_VENV} (once; some minutes)", file=sys.stderr)
    _run([sys.executable, "-m", "venv", "--clear", str(_VENV)])
    pip = [python, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"]
    _run([*pip, f"apache-flink=={FLINK}"])
    return python


def _installed(python: str) -> bool:
    asked = "from importlib.metadata import version; print(version('apache-flink'))"
    try:
        told = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
    except OSError:
        return False
    return told.stdout.strip() == FLINK


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise Unavailable(
            f"apache-flink {FLINK} could not be installed into {_VENV} ({lines[-1].strip()[:200]}):"
            " is the package registry reachable?"
        )
