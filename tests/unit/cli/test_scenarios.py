"""Transcripts that a person can read: every `$ command` of tests/scenarios/*.txt, run and compared.

A transcript is text and commands; a command's output follows it: standard output, then standard
error, then `[exit N]` unless N is 0. Commands run in a copy of tests/scenarios/files and examples.
To rewrite the transcripts after a change, and then to review the difference:

    CONCORDANT_REWRITE=1 make test
    CONCORDANT_REWRITE=1 .venv/bin/python -m pytest tests/unit/cli/test_scenarios.py
"""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import pytest

from tests.unit.cli.conftest import ROOT, Run

SCENARIOS = sorted((ROOT / "tests" / "scenarios").glob("*.txt"))


def replayed(text: str, run: Run, folder: Path) -> str:
    """The transcript with the outputs that its commands have now."""
    written: list[str] = []
    for block in text.split("\n\n"):
        first, _, _ = block.partition("\n")
        if first.startswith("$ "):
            block = f"{first}\n{output(first.removeprefix('$ '), run, folder)}".rstrip("\n")
        written.append(block)
    return "\n\n".join(written).rstrip("\n") + "\n"


def output(command: str, run: Run, folder: Path) -> str:
    program, *arguments = shlex.split(command)
    if program == "cat":
        return "".join((folder / name).read_text(encoding="utf-8") for name in arguments)
    assert program == "concordant", f"a transcript cannot run {program}"
    done = run(*arguments)
    return done.out + done.err + (f"[exit {done.code}]\n" if done.code else "")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_transcript_is_what_happens(path: Path, run: Run, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path, dirs_exist_ok=True)
    shutil.copytree(ROOT / "tests" / "scenarios" / "files", tmp_path, dirs_exist_ok=True)
    expected = path.read_text(encoding="utf-8")
    found = replayed(expected, run, tmp_path)
    if os.environ.get("CONCORDANT_REWRITE"):
        path.write_text(found, encoding="utf-8")
    else:
        assert found == expected


def test_there_are_transcripts() -> None:
    assert SCENARIOS
