"""`concordant doctor`: is everything here that Concordant needs?"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec
import typer
from rich.markup import escape

from concordant.cli import terminal

_PACKAGES = {
    "concordant": "",
    "lark": "",
    "msgspec": "",
    "numba": "",
    "numpy": "",
    "pyarrow": "",
    "pyspark": "spark",
    "nats-py": "nats",
    "starlette": "console",
}
"""Package -> the extra that brings it; "" is the core, which must be there."""

_MARKS = {"ok": "[green]ok  [/]", "optional": "[yellow]none[/]", "bad": "[red]bad [/]"}
_JAVA_OLDEST = 17
_PYTHON_OLDEST = (3, 11)


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    found: str
    state: str
    """ok, optional (missing, and only some features need it) or bad."""
    advice: str = ""


@terminal.guarded
def doctor(json: terminal.Json = False) -> None:
    """Check what this machine has, and say what to install.

    Exits with 1 if something is missing that every command needs. What only some features need
    (Spark, NATS, the console) is named with the way to install it, and is no failure.
    """
    findings = [_python(), *_packages(), _java(), _machine()]
    if json:
        terminal.print_json({"ok": not _bad(findings), "findings": findings})
    else:
        for one in findings:
            terminal.out.print(f"{_MARKS[one.state]} {one.name:<12} {escape(one.found)}")
            if one.advice:
                terminal.print_text(f"     try: {one.advice}")
    if _bad(findings):
        raise typer.Exit(terminal.EXIT_CHECK_FAILED)


def _bad(findings: list[Finding]) -> bool:
    return any(finding.state == "bad" for finding in findings)


def _python() -> Finding:
    good = sys.version_info >= _PYTHON_OLDEST
    advice = "" if good else "install Python 3.11 or newer"
    return Finding("Python", platform.python_version(), "ok" if good else "bad", advice)


def _packages() -> list[Finding]:
    found = []
    for package, extra in _PACKAGES.items():
        try:
            found.append(Finding(package, version(package), "ok"))
        except PackageNotFoundError:
            name = f"concordant[{extra}]" if extra else "concordant"
            state = "optional" if extra else "bad"
            found.append(Finding(package, "not installed", state, f"pip install '{name}'"))
    return found


def _java() -> Finding:
    """Java is needed by Spark only."""
    home = os.environ.get("JAVA_HOME")
    path = shutil.which(str(Path(home) / "bin" / "java")) if home else shutil.which("java")
    advice = "for Spark install Java 17 or 21, e.g. the Debian package openjdk-17-jre-headless"
    if path is None:
        return Finding("Java", "not found", "optional", advice)
    try:
        shown = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return Finding("Java", "does not start", "optional", advice)
    number = re.search(r'version "(?:1\.)?(\d+)', shown)
    if number is None or int(number[1]) < _JAVA_OLDEST:
        return Finding("Java", shown.partition("\n")[0], "optional", f"too old: {advice}")
    return Finding("Java", shown.partition("\n")[0], "ok")


def _machine() -> Finding:
    return Finding("machine", f"{os.cpu_count()} cores, {platform.system()}", "ok")
