"""The cost of an event against the number of subscriptions, of which at most five admit it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from bench import events
from bench.kernels import plan_of_all
from bench.measure import interleaved, timed
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.correlate.columns import Batch
from concordant.correlate.columns import Column as Values
from concordant.correlate.engine import Engine
from concordant.correlate.kernel import Kernel
from concordant.model.kind import Kind

ADMITTED = 5
WIDTH = 1_000
"""The values of one subscription's own range, before neighbours overlap."""

WARM_ROWS = 2_000
VERIFIED = 10
"""Subscriptions whose relations are compared with those of the clear engine."""

VERIFIED_ROWS = 1_000


def _equal(i: int) -> str:
    symbol = f'"S{i // ADMITTED:05d}"'
    return f"Quote.symbol = {symbol} and Trade.symbol = {symbol}"


def _range(i: int) -> str:
    low, high = i * WIDTH, (i + ADMITTED) * WIDTH
    return (
        f"Quote.value >= {low} and Quote.value < {high} "
        f"and Trade.value >= {low} and Trade.value < {high}"
    )


def _threshold(i: int) -> str:
    """Thresholds that a value seldom passes: see `_events`."""
    return f"Quote.value > {i * WIDTH} and Trade.value > {i * WIDTH}"


KINDS: dict[str, Callable[[int], str]] = {
    "equality": _equal,
    "range": _range,
    "threshold": _threshold,
}


def _texts(kind: str, count: int) -> list[str]:
    return [f"s{i}: Quote then Trade and {KINDS[kind](i)}" for i in range(count)]


def _events(kind: str, count: int, rows: int) -> Batch:
    """Values such that at most five of `count` subscriptions admit each event."""
    rng = np.random.default_rng(1)
    groups = max(1, count // ADMITTED)
    symbols = tuple(f"S{i:05d}" for i in range(groups))
    reach = ADMITTED if kind == "threshold" else count + ADMITTED - 1
    columns = {
        ("symbol", Kind.STRING): Values(
            Kind.STRING, rng.integers(0, groups, rows).astype(np.int32), None, symbols
        ),
        ("value", Kind.INT): events.ints(rng.integers(1, reach * WIDTH, rows)),
    }
    return events.make(["Quote", "Trade"], rng.integers(0, 2, rows), columns)


@dataclass
class Crowd:
    """Subscriptions of one kind, events for them, and what was counted in the last round."""

    kind: str
    count: int
    size: Size
    measured_rows: int = 0
    admitted: int = 0
    relations: int = 0

    def __post_init__(self) -> None:
        self.batch = _events(self.kind, self.count, self.size.rows)
        start = perf_counter()
        self.plan = plan_of_all(_texts(self.kind, self.count), self.batch.topics)
        Kernel(self.plan)
        self.setup_seconds = perf_counter() - start
        self._verify()

    def _verify(self) -> None:
        """The first subscriptions find among all what the clear engine finds with them alone."""
        values = self.batch.attributes
        mine = values["symbol", Kind.STRING].values < VERIFIED // ADMITTED
        if self.kind != "equality":
            mine = values["value", Kind.INT].values < VERIFIED * WIDTH
        sample = self.batch.take(np.flatnonzero(mine)[:VERIFIED_ROWS])
        few = plan_of_all(_texts(self.kind, min(self.count, VERIFIED)), self.batch.topics)
        expected = [(one.subscription, one.event_ids) for one in Engine(few).step(sample.events())]
        found = [
            (one.subscription, one.event_ids)
            for one in Kernel(self.plan).step(sample)
            if one.subscription in few.by_name
        ]
        assert expected, "the first subscriptions found nothing"
        assert found == expected, "the kernel found other relations than the clear engine"

    def round(self) -> float:
        """Seconds per event of a fresh kernel, over the rows that the budget allows."""
        if not self.measured_rows:
            warm = self.batch.slice(0, WARM_ROWS)
            kernel = Kernel(self.plan)
            kernel.step(warm)
            probe = timed(lambda: kernel.step(warm)) / len(warm)
            allowed = int(4 * self.size.budget_seconds / probe)
            self.measured_rows = min(len(self.batch), max(WARM_ROWS, allowed))
        part = self.batch.slice(0, self.measured_rows)
        kernel = Kernel(self.plan)
        seconds = timed(lambda: kernel.step(part))
        counters = kernel.counters.values()
        self.admitted = sum(one.admitted for one in counters)
        self.relations = sum(one.relations for one in counters)
        assert self.admitted <= ADMITTED * len(part), "more subscriptions admit an event than five"
        assert self.relations > 0, "no subscription found anything"
        return seconds / len(part)


def run(size: Size) -> Section:
    """Nanoseconds per event with 1 to 10,000 subscriptions."""
    counts = [n for n in (1, 10, 100, 1_000, 10_000) if n <= size.subscriptions]
    rows: list[Row] = []
    for kind in KINDS:
        crowds = {str(count): Crowd(kind, count, size) for count in counts}
        taken = interleaved(size.rounds, {name: one.round for name, one in crowds.items()})
        for name, crowd in crowds.items():
            rows.append(
                {
                    "kind": kind,
                    "subscriptions": crowd.count,
                    "rate": 1 / taken[name].median,
                    "ns": 1e9 * taken[name].median,
                    "spread": taken[name].spread,
                    "admitted": crowd.admitted / crowd.measured_rows,
                    "relations": crowd.relations,
                    "events": crowd.measured_rows,
                    "setup": crowd.setup_seconds,
                }
            )
    thousand = [row for row in rows if row["subscriptions"] == 1_000]
    return Section(
        "subscriptions",
        "Subscriptions",
        "Each subscription is `Quote then Trade` with unary predicates on both, and at most five "
        'of them admit an event: by equality (`symbol = "S…"`, five subscriptions per symbol), by '
        "range (`value >= c and value < d`, five overlap everywhere), by threshold (`value > c`, "
        "where most events stay below). Set-up is parse, check, plan and an empty kernel.",
        (
            Column("kind", "predicates"),
            Column("subscriptions", "subscriptions", "count"),
            Column("rate", "events", "rate"),
            Column("ns", "ns/event", "ns"),
            Column("spread", "spread", "percent"),
            Column("admitted", "admitted by", "ns"),
            Column("relations", "relations", "count"),
            Column("events", "events measured", "count"),
            Column("setup", "set-up", "seconds"),
        ),
        rows,
        [
            Goal(
                f"1,000 subscriptions by {row['kind']}, an event admitted by 5",
                "≥ 1 M events/s",
                f"{row['rate'] / 1e6:.2f} M events/s",
            )
            for row in thousand
        ],
        Plot("subscriptions", "ns", "subscriptions", "ns per event", "kind"),
    )
