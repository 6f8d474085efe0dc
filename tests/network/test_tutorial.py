"""The tutorial of the network, typed as it is printed: two real shells, one node, real commands.

Marks in the page say what happens: `terminal: NAME` types the next block into a shell, `shown:
NAME` waits until the shell shows the lines of the next block (`…` stands for anything), and
`same: NAME FILE COUNT` compares the last lines of JSON of a shell with those of a file.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_ports

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial-network.md"
DEADLINE_S = 60
_STEP = re.compile(
    r"^<!-- (file|terminal|shown|same): (.+?) -->\n(?:```\w+\n(.*?)^```$)?", re.M | re.S
)


class Terminal:
    """A shell; everything it shows is kept."""

    def __init__(self, folder: Path, bin: Path) -> None:
        environment = {**os.environ, "PATH": f"{bin}{os.pathsep}{os.environ['PATH']}"}
        self.shown: list[str] = []
        self._seen = 0
        self._changed = threading.Condition()
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            with self._changed:
                self.shown.append(line.rstrip("\n"))
                self._changed.notify_all()

    def type(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()

    def wait_for(self, wanted: str) -> None:
        """Until a line shows up that looks like this one, after those that were waited for."""
        pattern = re.compile(".*".join(map(re.escape, wanted.split("…"))))
        deadline = time.monotonic() + DEADLINE_S
        with self._changed:
            while True:
                for at in range(self._seen, len(self.shown)):
                    if pattern.fullmatch(self.shown[at]):
                        self._seen = at + 1
                        return
                left = deadline - time.monotonic()
                assert left > 0, f"{wanted!r} is not among\n" + "\n".join(self.shown)
                self._changed.wait(left)

    def close(self) -> None:
        """End everything that runs in the shell, then leave it."""
        pid = self._shell.pid
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            os.kill(int(child), signal.SIGTERM)
        self.type("wait; exit\n")
        try:
            self._shell.wait(20)
        finally:
            self._shell.kill()
            self._reader.join(20)
            with self._shell:  # closes its pipes
                pass


@pytest.fixture
def terminals(tmp_path: Path) -> Iterator[dict[str, Terminal]]:
    bin = tmp_path / "bin"
    bin.mkdir()
    command = bin / "concordant"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m concordant.cli.main "$@"\n')
    command.chmod(0o755)
    made = {name: Terminal(tmp_path, bin) for name in ("second", "first")}
    yield made
    for terminal in made.values():
        terminal.close()


def test_the_tutorial_is_what_happens(tmp_path: Path, terminals: dict[str, Terminal]) -> None:
    door, http = free_ports(2)

    def local(text: str) -> str:
        return text.replace("7400", str(door)).replace("7480", str(http))

    steps = list(_STEP.finditer(PAGE.read_text(encoding="utf-8")))
    assert len(steps) > 12
    for step in steps:
        kind, name, block = step[1], step[2], local(step[3] or "")
        if kind == "file":
            (tmp_path / name).write_text(block)
        elif kind == "terminal":
            terminals[name].type(block)
        elif kind == "shown":
            for line in block.splitlines():
                terminals[name].wait_for(line)
        else:
            terminal, file, count = name.split()
            lines = [one for one in terminals[terminal].shown if one.startswith("{")]
            written: list[str] = []
            deadline = time.monotonic() + DEADLINE_S
            while len(written) < int(count):
                assert time.monotonic() < deadline, written
                time.sleep(0.05)  # nobody tells when a file grows
                written = (tmp_path / file).read_text().splitlines()
            assert lines[: int(count)] == written[: int(count)]
    assert not [line for one in terminals.values() for line in one.shown if "Traceback" in line]
