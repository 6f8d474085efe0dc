"""Throughput of the common workloads, each beside loops that only read and hash."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench import events
from bench.baseline import Baseline, Name
from bench.by_hand import ByHand
from bench.kernels import plan_of, verify
from bench.measure import Timing, interleaved, timed
from bench.result import Column, Goal, Row, Section, Size
from concordant.correlate.columns import Batch
from concordant.correlate.kernel import Kernel
from concordant.evaluate.market import market_day
from concordant.model.kind import Kind

RISING = (
    "rising: EarningsReport then StockQuote[1] "
    "and StockQuote[1].value < StockQuote[2].value and StockQuote[2].value < StockQuote[3].value "
    "match first consume prefix partition by symbol within 5 min"
)
"""The thesis's example: an earnings report, then three rising quotes of the same symbol."""

RISING_COLUMNS: tuple[Name, ...] = (("value", Kind.FLOAT),)
RISING_KEY: Name = ("symbol", Kind.STRING)
RISING_VERIFIED_ROWS = 20_000
"""Reports are rare: fewer events than these hold few relations."""


@dataclass(frozen=True)
class Case:
    """A workload: events, a question about them, and the columns that the question needs."""

    name: str
    text: str
    batch: Batch
    columns: tuple[Name, ...] = ()
    key: Name | None = None
    verified_rows: int = 3_000
    verified_keys: int | None = None
    """Compare with the clear engine on so many keys only, so that each has a history."""
    sequence: tuple[str, ...] = ()
    """Of a plain sequence, its topics: then there is a loop by hand for it."""

    def sample(self) -> Batch:
        """What the clear engine takes as well."""
        rows = np.arange(len(self.batch))
        if self.key is not None and self.verified_keys is not None:
            keys = self.batch.attributes[self.key].values
            rows = np.flatnonzero(np.isin(keys, np.unique(keys)[: self.verified_keys]))
        return self.batch.take(rows[: self.verified_rows])


def cases(rows: int) -> Iterator[Case]:
    """All workloads, made one at a time."""
    yield Case(
        "stock rising",
        RISING,
        market_day(rows),
        RISING_COLUMNS,
        RISING_KEY,
        RISING_VERIFIED_ROWS,
    )
    for length in (3, 5, 7, 9):
        topics = tuple(events.sequence_topics(length))
        text = f"{' then '.join(topics)} partition by key"
        batch = events.sequence(length, rows)
        yield Case(f"sequence of {length}", text, batch, (), events.KEY, 6_000, 20, topics)
    for count in (2, 3, 4):
        yield _faidecs("A", count, ("A.a < B.a", "B.b < C.b", "C.c < D.c")[: count - 1], rows)
    for count in (2, 3, 4):
        unary = ("A.a < 500", "B.b > 500", "C.c < 500", "D.a > 500")
        yield _faidecs("B", count, unary[:count], rows)
    wild = events.faidecs(3, rows)
    yield Case("wildcards", "A and B and C", wild)
    keyed = events.make("ABC", wild.topic, {events.KEY: wild.attributes["a", Kind.INT]})
    yield Case(
        "wildcards by key", "A and B and C partition by key", keyed, (), events.KEY, 3_000, 20
    )


def _faidecs(scenario: str, topics: int, predicates: tuple[str, ...], rows: int) -> Case:
    """Wilkin, thesis, 3.5.1: in A binary predicates filter, in B unary ones."""
    text = " and ".join(predicates)
    columns = tuple((name, Kind.INT) for name in "abc" if f".{name} " in text)
    batch = events.faidecs(topics, rows)
    return Case(f"FAIDECS {scenario}, {topics} topics", text, batch, columns)


def measure(case: Case, rounds: int) -> tuple[dict[str, Timing], int]:
    """Kernel, baselines and the loop by hand in turn, and the relations that the kernel found."""
    plan = plan_of(case.text, case.batch.topics)
    verify(plan, case.sample())
    baseline = Baseline(case.batch, case.columns, case.key)
    relations = 0

    def run_kernel() -> float:
        nonlocal relations
        kernel = Kernel(plan)

        def run() -> None:
            nonlocal relations
            relations = len(kernel.step(case.batch))

        return timed(run)

    candidates = {
        "dictionary": lambda: timed(baseline.run_dictionary),
        "baseline": lambda: timed(baseline.run),
        "kernel": run_kernel,
    }
    if case.sequence:
        assert case.key is not None
        by_hand = ByHand(case.batch, case.sequence, case.key)
        candidates["by hand"] = lambda: timed(by_hand.run)
    taken = interleaved(rounds, candidates)
    if case.sequence:
        assert by_hand.run() == relations, "the loop by hand has other relations"
    return taken, relations


def run(size: Size) -> Section:
    """Events per second of each workload, in one step, one thread."""
    rows: list[Row] = []
    for case in cases(size.rows):
        taken, relations = measure(case, size.rounds)
        kernel, baseline, by_hand = taken["kernel"], taken["baseline"], taken.get("by hand")
        dictionary = taken["dictionary"]
        each = 1e9 / len(case.batch)
        rows.append(
            {
                "workload": case.name,
                "subscription": case.text,
                "rate": len(case.batch) / kernel.median,
                "ns": each * kernel.median,
                "fastest": len(case.batch) / kernel.fastest,
                "spread": kernel.spread,
                "dictionary_ns": each * dictionary.median,
                "dictionary_ratio": kernel.over(dictionary),
                "baseline_ns": each * baseline.median,
                "ratio": kernel.over(baseline),
                "hand_ns": each * by_hand.median if by_hand else None,
                "hand_over": by_hand.over(baseline) if by_hand else None,
                "hand_ratio": kernel.over(by_hand) if by_hand else None,
                "relations": relations,
            }
        )
    asked = [r for r in rows if r["workload"].startswith(("stock", "sequence"))]
    return Section(
        "workloads",
        "Workloads",
        f"{size.rows:,} events in one step. Both baselines are Numba loops that read the same "
        "columns (topic, time, the attributes that the subscription names) and hash the key of "
        "each event; where there is no `partition by`, the topic is the key. One looks the key up "
        "in Numba's own dictionary; the *lean* one counts in an open-addressing table made for "
        "integers and for so many keys. *By hand* is a loop compiled for that one sequence and for "
        "nothing else, which gives row numbers: what matching itself costs at least. Stock rising "
        "is the market day (500 symbols); sequences have 1,000 keys and six topics of noise, all "
        "topics equally often; FAIDECS has three integer attributes in [0, 1000], in A binary "
        "predicates filter and in B unary ones.",
        (
            Column("workload", "workload"),
            Column("rate", "events", "rate"),
            Column("ns", "ns/event", "ns"),
            Column("fastest", "fastest round", "rate"),
            Column("spread", "spread", "percent"),
            Column("dictionary_ns", "dictionary ns/event", "ns"),
            Column("dictionary_ratio", "ratio", "ratio"),
            Column("baseline_ns", "lean ns/event", "ns"),
            Column("ratio", "ratio", "ratio"),
            Column("hand_ns", "by hand ns/event", "ns"),
            Column("hand_over", "to the lean one", "ratio"),
            Column("hand_ratio", "kernel to by hand", "ratio"),
            Column("relations", "relations", "count"),
        ),
        rows,
        [
            Goal(
                "stock and sequence workloads against a loop with Numba's dictionary",
                "≤ 3x",
                _ratios(asked, "dictionary_ratio"),
            ),
            Goal(
                "FAIDECS and wildcards against a loop with Numba's dictionary",
                "≤ 3x",
                _ratios([r for r in rows if r not in asked], "dictionary_ratio"),
            ),
            Goal(
                "stock and sequence workloads against the lean loop",
                "stated",
                _ratios(asked, "ratio"),
            ),
            Goal(
                "a loop by hand for one sequence alone, against the lean loop",
                "stated",
                _ratios([r for r in asked if r["hand_over"]], "hand_over"),
            ),
            Goal(
                "stock and sequence workloads, events/s of one core",
                "≥ 20 M",
                ", ".join(f"{r['rate'] / 1e6:.1f} M" for r in asked),
            ),
            Goal(
                "the same in the fastest round",
                "≥ 20 M",
                ", ".join(f"{r['fastest'] / 1e6:.1f} M" for r in asked),
            ),
        ],
    )


def _ratios(rows: Sequence[Row], name: str) -> str:
    return ", ".join(f"{row[name]:.1f}x" for row in rows)
