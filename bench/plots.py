"""Plots of the sections that have one, as PNG files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, NullFormatter

from bench.result import Plot, Section

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#999999")
"""Okabe and Ito's, which people who do not see all colours can tell apart."""

MARKS = "osD^vPX*"


def draw(sections: Sequence[Section], folder: Path) -> list[Path]:
    """A picture for each plot of a section."""
    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for section in sections:
        for name, plot in section.plots.items():
            path = folder / f"{name}.png"
            _lines(section, plot, path)
            made.append(path)
    return made


def _lines(section: Section, plot: Plot, path: Path) -> None:
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    rows = [row for row in section.drawn or section.rows if row.get(plot.x) is not None]
    names = list(dict.fromkeys(row[plot.series] for row in rows)) if plot.series else [""]
    for i, name in enumerate(names):
        mine = [row for row in rows if not plot.series or row[plot.series] == name]
        axes.plot(
            [row[plot.x] for row in mine],
            [row[plot.y] for row in mine],
            marker="" if plot.linear else MARKS[i % len(MARKS)],
            color=COLOURS[i % len(COLOURS)],
            markersize=5,
            linewidth=1.5,
            label=name,
        )
    low, high = axes.dataLim.intervaly
    if plot.linear:
        axes.set_ylim(0, 1.1 * high)
    else:
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_ylim(10 ** _floor(low), 10 ** -_floor(1 / high))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.set_xlabel(plot.x_label)
    axes.set_ylabel(plot.y_label)
    axes.set_title(section.title, loc="left")
    axes.grid(visible=True, which="major", color="#dddddd", linewidth=0.8)
    axes.spines[["top", "right"]].set_visible(False)
    if plot.series:
        figure.legend(loc="outside right upper", frameon=False)
    figure.savefig(path, dpi=130, metadata={"Software": None})
    pyplot.close(figure)


def _floor(value: float) -> int:
    """The exponent of the power of ten at or below."""
    exponent = 0
    while 10**exponent > value:
        exponent -= 1
    while 10 ** (exponent + 1) <= value:
        exponent += 1
    return exponent
