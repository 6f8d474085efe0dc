"""The cost of an event against the number of rows per step, down to one."""

from __future__ import annotations

from collections.abc import Callable

from bench.kernels import chunks, plan_of, verify
from bench.measure import interleaved, timed
from bench.result import Column, Goal, Plot, Row, Section, Size
from bench.workloads import RISING, RISING_VERIFIED_ROWS
from concordant.correlate.columns import Batch
from concordant.correlate.kernel import Kernel
from concordant.correlate.plan import Plan
from concordant.evaluate.market import market_day
from concordant.model.event import Event

STEPS_MAX = 70_000
"""Steps of one round: enough for the kernel to let go of old rows on the way."""

STEPS_MIN = 200

SINGLE = ("push", "step_event", "take_event")
"""What a kernel may call its way in for one event object."""


def run(size: Size) -> Section:
    """Stock rising by batches of 1 to a million rows, and event by event."""
    day = market_day(size.longest)
    plan = plan_of(RISING, day.topics)
    verify(plan, day.slice(0, RISING_VERIFIED_ROWS))
    candidates: dict[str, Callable[[], float]] = {}
    counts: dict[str, int] = {}
    relations: dict[str, int] = {}
    single = next((name for name in SINGLE if hasattr(Kernel, name)), None)
    if single is not None:
        events = list(day.slice(0, STEPS_MAX).events())
        candidates["event objects"] = lambda: _each(plan, events, single)
        counts["event objects"] = len(events)
    for rows in size.powers(0, 1, 2, 3, 4, 5, 6):
        parts = _affordable(plan, day, rows, 10 * size.budget_seconds)
        name = f"{rows:,}"
        counts[name] = sum(map(len, parts))
        candidates[name] = _steps(plan, parts, name, relations)
    taken = interleaved(size.rounds, candidates)
    table: list[Row] = []
    for name, timing in taken.items():
        ns = 1e9 * timing.median / counts[name]
        table.append(
            {
                "rows": int(name.replace(",", "")) if name[0].isdigit() else None,
                "batch": name,
                "rate": 1e9 / ns,
                "ns": ns,
                "spread": timing.spread,
                "events": counts[name],
                "relations": relations.get(name),
            }
        )
    ones = [row for row in table if row["rows"] in (None, 1)]
    best = max(ones, key=lambda row: row["rate"])
    return Section(
        "batches",
        "Rows per step",
        "Stock rising, a step per batch; the batches are made beforehand, and where a step costs "
        "much there are fewer of them."
        + (f" Event objects go in one at a time by `Kernel.{single}`." if single else ""),
        (
            Column("batch", "rows per step"),
            Column("rate", "events", "rate"),
            Column("ns", "ns/event", "ns"),
            Column("spread", "spread", "percent"),
            Column("events", "events measured", "count"),
            Column("relations", "relations", "count"),
        ),
        table,
        [
            Goal(
                f"batch of one (by {'events' if best['rows'] is None else 'one-row batches'})",
                "≥ 300,000 events/s",
                f"{best['rate']:,.0f} events/s",
            )
        ],
        Plot("rows", "ns", "rows per step", "ns per event"),
    )


def _affordable(plan: Plan, day: Batch, rows: int, seconds: float) -> list[Batch]:
    """The day's first batches, as many as the kernel takes in the given time."""
    few = list(chunks(day.slice(0, rows * STEPS_MIN), rows))
    taken = _steps(plan, few, "", {})()
    allowed = int(max(STEPS_MIN, min(STEPS_MAX, len(few) * seconds / taken)))
    return list(chunks(day.slice(0, rows * allowed), rows))


def _steps(
    plan: Plan, parts: list[Batch], name: str, relations: dict[str, int]
) -> Callable[[], float]:
    """A round: a fresh kernel takes the batches one by one."""

    def once() -> float:
        kernel = Kernel(plan)
        found = 0

        def run() -> None:
            nonlocal found
            for part in parts:
                found += len(kernel.step(part))

        seconds = timed(run)
        relations[name] = found
        return seconds

    return once


def _each(plan: Plan, events: list[Event], single: str) -> float:
    give = getattr(Kernel(plan), single)

    def run() -> None:
        for event in events:
            give(event)

    return timed(run)
