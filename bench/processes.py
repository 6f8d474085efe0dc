"""Processor time and memory of this process and all it started (Linux): Spark's JVM and workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from bench.measure import Timing, interleaved, timed


def cpu_seconds() -> float:
    """Processor time of the whole family so far, of children that have ended too."""
    return sum(ticks for ticks, _ in _family()) / os.sysconf("SC_CLK_TCK")


def resident_bytes() -> int:
    """Memory that the family holds now, apart from the JVM, whose heap is as large as it may be."""
    return sum(pages for _, pages in _family(without="java")) * os.sysconf("SC_PAGE_SIZE")


def measured(
    rounds: int, candidates: Mapping[str, Callable[[], object]]
) -> tuple[dict[str, Timing], dict[str, float]]:
    """Seconds of every candidate by rounds, in turn, and the processor seconds of its best one."""
    cpu: dict[str, list[float]] = {name: [] for name in candidates}

    def once(name: str) -> float:
        start = cpu_seconds()
        seconds = timed(candidates[name])
        cpu[name].append(cpu_seconds() - start)
        return seconds

    taken = interleaved(rounds, {name: partial(once, name) for name in candidates})
    return taken, {name: min(seconds) for name, seconds in cpu.items()}


def _family(without: str = "") -> list[tuple[int, int]]:
    """(ticks, pages) of this process and its descendants."""
    children: dict[int, list[int]] = {}
    told: dict[int, tuple[str, int, int]] = {}
    for place in Path("/proc").glob("[0-9]*"):
        try:
            text = (place / "stat").read_text()
        except OSError:
            continue  # it has just ended
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        pid = int(place.name)
        children.setdefault(int(fields[1]), []).append(pid)
        told[pid] = name, sum(map(int, fields[11:15])), int(fields[21])
    found, waiting = [], [os.getpid()]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        name, ticks, pages = told.get(pid, ("", 0, 0))
        if name and name != without:
            found.append((ticks, pages))
    return found
