"""What a benchmark hands back: rows with typed columns, goals beside what was measured, a plot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

Row = dict[str, Any]
"""Values of one row, by column key."""


class Column(msgspec.Struct, frozen=True):
    """One column of a table: the key in its rows, what a person reads above it, how it is shown."""

    key: str
    label: str
    show: str = "text"

    def text(self, row: Row) -> str:
        value = row.get(self.key)
        return "–" if value is None else SHOWN[self.show](value)


class Goal(msgspec.Struct, frozen=True):
    """What is wanted, and what this run gave; judged by a person."""

    what: str
    wanted: str
    measured: str


class Plot(msgspec.Struct, frozen=True):
    """Lines over the rows of a table, both axes logarithmic unless something else is said."""

    x: str
    y: str
    x_label: str
    y_label: str
    series: str | None = None
    """The column whose values are the lines; None is one line."""
    linear: bool = False
    """Both axes linear, and values from zero on: for something over time."""


class Section(msgspec.Struct, frozen=True):
    """The result of one benchmark."""

    name: str
    title: str
    note: str
    columns: tuple[Column, ...]
    rows: list[Row]
    goals: list[Goal] = []
    plot: Plot | None = None
    more_plots: tuple[Plot, ...] = ()
    drawn: list[Row] = []
    """What the plots show in place of the table's rows, where the table only sums it up."""

    @property
    def plots(self) -> dict[str, Plot]:
        """All of them, by the names of their files."""
        if self.plot is None:
            return {}
        more = {f"{self.name}-{n}": one for n, one in enumerate(self.more_plots, 2)}
        return {self.name: self.plot, **more}


class Size(msgspec.Struct, frozen=True):
    """How much is measured."""

    name: str
    rounds: int
    rows: int
    """Events of a throughput measurement."""
    longest: int
    """Largest queue, number of keys, batch and state."""
    subscriptions: int
    budget_seconds: float
    """About what one round of one candidate may take where the cost is not known beforehand."""

    def powers(self, *exponents: int) -> list[int]:
        """Powers of ten up to the longest."""
        return [10**exponent for exponent in exponents if 10**exponent <= self.longest]


QUICK = Size("quick", 5, 200_000, 100_000, 1_000, 0.05)
FULL = Size("full", 7, 1_000_000, 1_000_000, 10_000, 0.3)


def _si(value: float) -> str:
    for limit, unit in ((1e6, " M"), (1e3, " k")):
        if value >= limit:
            return (
                f"{value / limit:,.3g}{unit}"
                if value / limit < 100
                else f"{value / limit:,.0f}{unit}"
            )
    return f"{value:,.0f}"


def _seconds(value: float) -> str:
    for limit, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= limit:
            return f"{value / limit:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


SHOWN: dict[str, Callable[[Any], str]] = {
    "text": str,
    "count": lambda value: f"{value:,}",
    "rate": lambda value: f"{_si(value)}/s",
    "ns": lambda value: f"{value:,.0f}" if value >= 100 else f"{value:.1f}",
    "ratio": lambda value: f"{value:.2f}x",
    "percent": lambda value: f"{100 * value:.0f} %",
    "seconds": _seconds,
    "bytes": lambda value: f"{value:,.1f}" if value < 1000 else f"{value:,.0f}",
    "megabytes": lambda value: f"{value / 1e6:,.1f} MB",
}
