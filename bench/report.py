"""Results for people: tables on a terminal, JSON, and the page `docs/benchmarks.md`."""

from __future__ import annotations

import datetime
import os
import platform
import re
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

from bench.result import Section, Size

PACKAGES = ("concordant", "numba", "numpy", "msgspec")


def show(section: Section, console: Console) -> None:
    """A section as a table."""
    table = Table(title=section.title, title_justify="left")
    for column in section.columns:
        table.add_column(column.label, justify="left" if column.show == "text" else "right")
    for row in section.rows:
        table.add_row(*(column.text(row) for column in section.columns))
    console.print(table)
    for goal in section.goals:
        console.print(f"  {goal.what}: {goal.measured} (goal: {goal.wanted})", markup=False)


def machine() -> dict[str, Any]:
    """What the numbers depend on, with no name of a machine or of a folder."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or "unknown"
    names = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return names[0] if names else platform.machine()


class Measured(msgspec.Struct, frozen=True):
    """A section with what it depends on."""

    machine: dict[str, Any]
    size: Size
    section: Section


def save(measured: Measured, folder: Path) -> None:
    """One section as JSON: it can be measured again without the others."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{measured.section.name}-{measured.size.name}.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")


def page(measured: Sequence[Measured], names: Sequence[str], before: str = "") -> str:
    """The text of `docs/benchmarks.md`: what was measured now, and of the rest what stood there.

    `names` are all sections in their order. The page itself keeps what other runs measured, so that
    a section can be measured again anywhere without the others.
    """
    about, size = measured[0].machine, measured[0].size
    packages = ", ".join(f"{name} {number}" for name, number in about["packages"].items())
    blocks = _kept(before) | {one.section.name: _block(one) for one in measured}
    found = [blocks[name] for name in names if name in blocks]
    parts = [
        "# Benchmarks",
        "",
        "This page is written by runs of the benchmarks and never by hand:",
        "",
        "```sh",
        f".venv/bin/python -m bench --size {size.name} --write-docs",
        "```",
        "",
        "Each number stands beside what it is compared with, taken in the same run: every "
        "candidate once per round, in turn, one thread. Times are medians "
        "over the rounds; *spread* is the slowest minus the fastest, as a share of the median; "
        "ratios are taken within a round. Before anything is measured, the kernel's relations are "
        "compared with those of the clear engine on some of the events, or with a known count. "
        "Nothing here passes or fails by time, and no test does.",
        "",
        f"Measured on {about['cores']} cores ({about['system']}), Python {about['python']}, "
        f"{packages}. Each section says when, on which processor, with how many rounds, and how "
        "busy the machine was.",
        "",
        _GOALS,
        "",
        *markdown(["section", "what", "goal", "measured"], [], [False, False, True, True]),
        *(line for one in found for line in one.goals),
    ]
    return "\n".join(parts) + "\n\n" + "\n".join(one.text for one in found)


_GOALS = "## Goals"
_MARK = re.compile(r"^<!-- section: (\S+) -->\n", re.MULTILINE)


class _Block(msgspec.Struct, frozen=True):
    """A section as it stands on the page, and its lines in the table of goals."""

    text: str
    goals: list[str]


def _kept(page: str) -> dict[str, _Block]:
    """The sections of a page, by their names."""
    head, *parts = _MARK.split(page)
    goals = [line.split(" | ") for line in head.partition(_GOALS)[2].splitlines()]
    kept = {}
    for name, text in zip(parts[::2], parts[1::2], strict=True):
        title = text.partition("\n")[0].removeprefix("## ")
        mine = [" | ".join(cells) for cells in goals if cells[0] == f"| {title}"]
        kept[name] = _Block(f"<!-- section: {name} -->\n{text.rstrip()}\n", mine)
    return kept


def _block(one: Measured) -> _Block:
    section = one.section
    about = one.machine
    when = f"{about['date']}, {about['processor']}, {one.size.rounds} rounds, load {about['load']}"
    parts = [f"<!-- section: {section.name} -->", f"## {section.title}"]
    parts += ["", section.note, "", f"*{when}.*", ""]
    for name, plot in section.plots.items():
        parts += [f"![{section.title}: {plot.y_label}](plots/{name}.png)", ""]
    parts += markdown(
        [column.label for column in section.columns],
        [[column.text(row) for column in section.columns] for row in section.rows],
        [column.show != "text" for column in section.columns],
    )
    rows = [[section.title, goal.what, goal.wanted, goal.measured] for goal in section.goals]
    return _Block("\n".join(parts) + "\n", [_line(cells) for cells in rows])


def markdown(heads: list[str], rows: list[list[str]], right: list[bool]) -> list[str]:
    """A table, line by line; columns of numbers stand to the right."""
    rule = ["--:" if one else "---" for one in right]
    return [_line(cells) for cells in (heads, rule, *rows)]


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
