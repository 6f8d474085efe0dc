"""Processes that this one started, directly or not, as Linux shows them."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def kill_with_descendants(pid: int) -> None:
    """Kill -9 of a process and of all that it started, whatever group they are in."""
    for one in [*descendants("", of=pid), pid]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)


def descendants(word: str, *, of: int | None = None) -> list[int]:
    """Those of this process, or of another, with a word in their command line; sorted."""
    root = os.getpid() if of is None else of
    parents: dict[int, int] = {}
    named: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rsplit(") ", 1)[1].split()[1])
            command = (entry / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        parents[int(entry.name)] = parent
        if word.encode() in command:
            named.append(int(entry.name))
    return [pid for pid in sorted(named) if pid != root and _under(root, pid, parents)]


def peak_megabytes(pid: int) -> int:
    """The most memory that a process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    return 0


def _under(root: int, pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != root:
        pid = parents[pid]
    return pid == root
