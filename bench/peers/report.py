"""From rounds to what a person reads: medians, a table, JSON, and the page in `docs/`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from rich.table import Table

from bench.peers.flink import Job
from bench.peers.flink_session import MATCH, SCAN
from bench.peers.kernel_side import QUESTION, Run
from bench.peers.spark_side import TURNS, WARM_UPS, WAYS, SparkRun

MATCHING_GOAL = 100
END_TO_END_GOAL = 15


class Round(msgspec.Struct, frozen=True):
    """One turn: Flink's two jobs, the kernel after each of them, Concordant on Spark at the end."""

    scan: Job
    match: Job
    ours: list[Run]
    spark: SparkRun

    def our(self, part: Callable[[Run], float]) -> float:
        return statistics.median(map(part, self.ours))

    @property
    def flink_matching(self) -> float:
        """Total minus scan. What Flink does while it still reads does not count."""
        return self.match.seconds - self.scan.seconds

    @property
    def flink_matching_cpu(self) -> float:
        return self.match.cpu_seconds - self.scan.cpu_seconds


class Pair(msgspec.Struct, frozen=True):
    """One mode of Flink at one parallelism, against Concordant at the same parallelism."""

    mode: str
    parallelism: int
    rounds: list[Round]

    def median(self, part: Callable[[Round], float]) -> float:
        return statistics.median(map(part, self.rounds))

    def summary(self) -> dict[str, Any]:
        """Medians over the rounds; ratios are taken within a round first."""
        return {
            "mode": self.mode,
            "parallelism": self.parallelism,
            "flink_scan_seconds": self.median(lambda r: r.scan.seconds),
            "flink_total_seconds": self.median(lambda r: r.match.seconds),
            "flink_matching_seconds": self.median(lambda r: r.flink_matching),
            "flink_matching_cpu_seconds": self.median(lambda r: r.flink_matching_cpu),
            "concordant_scan_seconds": self.median(lambda r: r.our(_scan)),
            "concordant_total_seconds": self.median(lambda r: r.our(_total)),
            "concordant_matching_seconds": self.median(lambda r: r.our(_match)),
            "concordant_matching_cpu_seconds": self.median(lambda r: r.our(_match_cpu)),
            "matching_ratio": self.median(_matching_ratio),
            "matching_ratio_least": min(map(_matching_ratio, self.rounds)),
            "matching_ratio_most": max(map(_matching_ratio, self.rounds)),
            "matching_cpu_ratio": self.median(
                lambda r: r.flink_matching_cpu / max(r.our(_match_cpu), 1e-9)
            ),
            "end_to_end_ratio": self.median(lambda r: r.match.seconds / r.our(_total)),
            "spark": {way: self.on_spark(way) for way in WAYS},
        }

    def on_spark(self, way: str) -> dict[str, float]:
        """Concordant on Spark, one way, beside Flink's total."""
        return {
            "seconds": self.median(lambda r: r.spark.seconds[way]),
            "cpu_seconds": self.median(lambda r: r.spark.cpu_seconds[way]),
            "ratio": self.median(lambda r: r.match.seconds / r.spark.seconds[way]),
            "cpu_ratio": self.median(lambda r: r.match.cpu_seconds / r.spark.cpu_seconds[way]),
        }


class Agreement(msgspec.Struct, frozen=True):
    """What both sides found on one small file."""

    case: str
    flink: str
    concordant: str


class Result(msgspec.Struct, frozen=True):
    """Everything one run of the benchmark says."""

    size: str
    rows: int
    symbols: int
    seed: int
    matches: int
    versions: dict[str, str]
    cores: int
    load: float
    """Processes that wanted a core, on average, in the minute before the end."""
    agree: list[Agreement]
    differ: list[Agreement]
    pairs: list[Pair]
    larger_rows: int
    larger: list[Pair]
    """The same on a larger file."""
    starts: dict[str, float]
    """Seconds of the first question to each JVM, less those of the second."""


def _scan(run: Run) -> float:
    return run.scan_seconds


def _match(run: Run) -> float:
    return run.match_seconds


def _match_cpu(run: Run) -> float:
    return run.match_cpu_seconds


def _total(run: Run) -> float:
    return run.scan_seconds + run.match_seconds


def _matching_ratio(one: Round) -> float:
    return one.flink_matching / one.our(_match)


def as_json(result: Result) -> bytes:
    """The result with its summary first."""
    body = {"summary": [pair.summary() for pair in result.pairs], **msgspec.to_builtins(result)}
    return msgspec.json.format(msgspec.json.encode(body)) + b"\n"


# --- tables ---------------------------------------------------------------------------------------

_HEADINGS = ("", "parallelism", "scan", "total", "matching", "rows/s matching", "CPU of matching")
_ON_SPARK = ("Flink's mode", "parallelism", "Flink", "Spark", "ratio", "CPU", "ratio of CPU")
_RATIOS = ("Flink / Concordant", "parallelism", "matching", "rounds", "CPU of matching", "total")


def _times(result: Result) -> Iterable[tuple[str, ...]]:
    for pair in result.pairs:
        s = pair.summary()
        for side in ("flink", "concordant"):
            matching = s[f"{side}_matching_seconds"]
            name = f"Flink, {pair.mode}" if side == "flink" else "Concordant beside it"
            yield (
                name,
                str(pair.parallelism),
                _seconds(s[f"{side}_scan_seconds"]),
                _seconds(s[f"{side}_total_seconds"]),
                _seconds(matching),
                f"{result.rows / max(matching, 1e-9):,.0f}",
                _seconds(s[f"{side}_matching_cpu_seconds"]),
            )


def _ratios(result: Result) -> Iterable[tuple[str, ...]]:
    for pair in result.pairs:
        s = pair.summary()
        yield (
            pair.mode,
            str(pair.parallelism),
            f"{s['matching_ratio']:.1f}x",
            f"{s['matching_ratio_least']:.1f}x to {s['matching_ratio_most']:.1f}x",
            f"{s['matching_cpu_ratio']:.1f}x",
            f"{s['end_to_end_ratio']:.1f}x",
        )


def _on_spark(pairs: Sequence[Pair]) -> Iterable[tuple[str, ...]]:
    for pair in pairs:
        for way in WAYS:
            s = pair.on_spark(way)
            yield (
                f"{pair.mode}: Spark, {way}",
                str(pair.parallelism),
                _seconds(pair.median(lambda r: r.match.seconds)),
                _seconds(s["seconds"]),
                f"{s['ratio']:.1f}x",
                _seconds(s["cpu_seconds"]),
                f"{s['cpu_ratio']:.1f}x",
            )


def _seconds(value: float) -> str:
    return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def tables(result: Result) -> list[Table]:
    """What the terminal shows."""
    title = f"{result.rows:,} quotes, {result.matches:,} matches, load {result.load:.1f}"
    made = []
    for heading, columns, rows in (
        (title, _HEADINGS, _times(result)),
        ("How many times less Concordant takes", _RATIOS, _ratios(result)),
        ("Concordant on Spark, from the file to the sink", _ON_SPARK, _on_spark(result.pairs)),
        (f"The same on {result.larger_rows:,} rows", _ON_SPARK, _on_spark(result.larger)),
    ):
        table = Table(title=heading, title_justify="left")
        for number, column in enumerate(columns):
            table.add_column(column, justify="left" if number == 0 else "right")
        for row in rows:
            table.add_row(*row)
        made.append(table)
    return made


def goals(result: Result) -> list[str]:
    """What is wanted beside what this run gave; a person judges."""
    least = min(pair.summary()["matching_ratio"] for pair in result.pairs)
    total = min(pair.summary()["end_to_end_ratio"] for pair in result.pairs)
    spark = [
        (f"end to end on Spark, {way}, {rows:,} rows", min(p.on_spark(way)["ratio"] for p in pairs))
        for rows, pairs in ((result.rows, result.pairs), (result.larger_rows, result.larger))
        for way in WAYS
    ]
    return [
        _goal("matching", MATCHING_GOAL, least),
        _goal("end to end", END_TO_END_GOAL, total),
        *(_goal(what, END_TO_END_GOAL, one) for what, one in spark),
    ]


def _goal(what: str, wanted: float, measured: float) -> str:
    reached = "reached" if measured >= wanted else "not reached"
    return (
        f"{what}: {wanted}x less wanted, {measured:.1f}x measured in the least favourable row: "
        f"{reached}"
    )


# --- the page -------------------------------------------------------------------------------------


def _markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [columns, ["---", *["---:"] * (len(columns) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page(result: Result) -> str:
    """The text of `docs/benchmarks-peers.md`."""
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    cases = ("small file", "Flink", "Concordant")
    return _PAGE.format(
        rows=f"{result.rows:,}",
        symbols=result.symbols,
        matches=f"{result.matches:,}",
        rounds=len(result.pairs[0].rounds),
        turns=len(result.pairs[0].rounds[0].ours),
        warm_ups=WARM_UPS,
        spark_turns=TURNS,
        cores=result.cores,
        load=f"{result.load:.1f}",
        versions=versions,
        match=MATCH.strip(),
        scan=SCAN,
        question=QUESTION.strip(),
        times=_markdown(_HEADINGS, _times(result)),
        ratios=_markdown(_RATIOS, _ratios(result)),
        on_spark=_markdown(_ON_SPARK, _on_spark(result.pairs)),
        larger_rows=f"{result.larger_rows:,}",
        larger=_markdown(_ON_SPARK, _on_spark(result.larger)),
        starts=", ".join(f"{name} {_seconds(one)}" for name, one in result.starts.items()),
        goals="\n".join(f"- {line}" for line in goals(result)),
        agree=_markdown(cases, [(a.case, a.flink, a.concordant) for a in result.agree]),
        differ=_markdown(cases, [(a.case, a.flink, a.concordant) for a in result.differ]),
    )


_PAGE = """\
# Beside Flink SQL

Written by `make bench-peers`. Three strictly rising quotes in a row, per symbol: Flink SQL
`MATCH_RECOGNIZE` and Concordant, its kernel alone and on Spark, on the same file.

## What was run

A CSV file of {rows} quotes of {symbols} symbols (a generated market day); {matches} matches.

```text
{match}
```

```sub
{question}
```

The scan alone, into a sink that drops the rows:

```text
{scan}
```

- Matching is total minus scan; what Flink matches while it still reads is thereby given to it for
  nothing.
- Flink's times are the net runtime of the job (`JobExecutionResult`), in one JVM that has run the
  queries before: no start of the JVM or of the cluster, no planning. Object reuse is on, the state
  is on the heap, the sink is `blackhole`, both runtime modes are shown. One CSV file is one split,
  so parallelism 2 has two matchers behind one reader.
- Concordant's scan is reading the CSV with Arrow into a checked batch in the total order. Matching
  is planning and `Kernel.step`. Parallelism 2 is two processes: each reads the whole file and keeps
  half of the symbols. Compiling the kernel (once per machine) does not count.
- On Spark (`local[1]`, `local[2]`), `correlate(spark.read.schema(…).csv(…), …)`, one row for each
  way: with the columns that Flink's query selects, dropped (`noop`); with all 28 fields of a
  relation, dropped; all into Parquet; and dropped with the file read by Spark's own CSV reader and
  shuffled by Spark (`scan="jvm"`), as it is where workers cannot read a file. Times are from the
  call to the last row, planning included. The first two ways are taken {warm_ups} times each
  beforehand, which together lasts no longer than one job of Flink, and then {spark_turns} times in
  turn, of which the median counts: a JVM compiles itself for the first seconds of work, and Flink's
  has had them.
- The start of a JVM is in none of these times. The first question to each took longer than the
  second by: {starts}.
- {rounds} rounds; in each, the two sides take turns at each parallelism and mode, Flink once and
  Concordant {turns} times: what takes a tenth of a second is doubled by one moment of another
  program, what takes ten seconds is not. Times are medians; ratios are taken within a round, and
  their median is shown with the least and the most.
- CPU is the processor time of the process (for Flink of the whole JVM: its compiler and collector
  are in it, the cluster's start is not, being in both jobs); it suffers less from other programs.
- {versions}.
- {cores} cores, shared with other programs (load {load} at the end): read ratios.
- Only CSV: the formats that come with PyFlink are CSV and JSON.

## Measured

{times}

{ratios}

{on_spark}

On a file of {larger_rows} quotes, one round: what a job costs before its first row is less of it.

{larger}

{goals}

## Do both find the same?

Yes: on the measured file the very rows of all {matches} matches agree, in both modes at both
parallelisms, and on these small files too (matches are shown by row numbers).

{agree}

They agree for this pattern because all its matches have three rows: the match that ends first began
first, and "skip past last row" removes what `prefix` removes. Flink's strict contiguity is per
partition, as ours is.

## Where the two differ

- **Order.** Flink orders by row time in milliseconds; rows of equal time have no order unless more
  columns are named (here they stay as they came). Concordant orders by (time, source, seq) with
  microseconds. The smallest example has three quotes within one millisecond, written in another
  order than that of their times; the measured file has a quote per millisecond, where the orders
  coincide.

{differ}

- **Late rows.** In streaming mode Flink drops a row behind the watermark. Concordant sorts a file
  as a whole, and has nothing late.
- **Length.** A pattern with repetitions (`A B+ C`) has matches of many lengths; Flink takes the
  longest or the shortest. A subscription has a fixed number of slots.
- **Topics.** A row pattern is one sequence over one table. Slots of several topics need no order
  among each other unless the subscription asks for one (`then`).
"""
