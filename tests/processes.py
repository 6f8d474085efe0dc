"""Processes that this one started, directly or not, as Linux shows them."""

from __future__ import annotations

import os
from pathlib import Path


def descendants(word: str) -> list[int]:
    """Those with a word in their command line, sorted."""
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
    return [pid for pid in sorted(named) if _mine(pid, parents)]


def peak_megabytes(pid: int) -> int:
    """The most memory that a process ever had."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    return 0


def _mine(pid: int, parents: dict[int, int]) -> bool:
    while pid in parents and pid != os.getpid():
        pid = parents[pid]
    return pid == os.getpid()
