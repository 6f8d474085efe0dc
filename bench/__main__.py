"""`python -m bench [--size quick|full] [--only NAME …] [--write-docs]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import msgspec
from rich.console import Console

from bench import (
    batches,
    causal,
    causal_figures,
    keys,
    log,
    merging,
    merging_network,
    network,
    prices,
    queues,
    report,
    sequencing,
    sequencing_figures,
    sequencing_network,
    simulator,
    spark,
    spark_growth,
    spark_stream,
    startup,
    state,
    subscriptions,
    transactions,
    transactions_live,
    workloads,
)
from bench.result import FULL, QUICK, Section, Size
from concordant.memory import keep_freed

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS: dict[str, Callable[[Size], Section]] = {
    "workloads": workloads.run,
    "queues": queues.run,
    "keys": keys.run,
    "subscriptions": subscriptions.run,
    "batches": batches.run,
    "state": state.run,
    "startup": startup.run,
    "spark": spark.run,
    "spark-stream": spark_stream.run,
    "spark-growth": spark_growth.run,
    "simulator": simulator.run,
    "sequencing": sequencing.latency,
    "stamping": sequencing.stamping,
    "prices": prices.prices,
    "busiest": prices.busiest,
    "ranking": sequencing.rankings,
    "reranking": sequencing.reranking,
    "overhead": sequencing_figures.overhead,
    "sequencing-bytes": sequencing_figures.sizes,
    "swapping": sequencing_figures.swapping,
    "sequencing-tcp": sequencing_network.run,
    "total-large": sequencing.large,
    "merging": merging.run,
    "merging-tcp": merging_network.run,
    "network": network.run,
    "causal": causal.live,
    "causal-memory": causal.memory,
    "causal-bytes": causal.sizes,
    "causal-spread": causal_figures.spread,
    "causal-reach": causal_figures.reach,
    "causal-certain": causal_figures.certain,
    "causal-certain-rounds": causal_figures.certain_by_rounds,
    "log": log.run,
    "transactions-hops": transactions.hops,
    "transactions-overlays": transactions.overlays,
    "transactions-load": transactions.load,
    "transactions-regular": transactions.regular,
    "transactions-rate": transactions_live.rate,
    "transactions-tcp": transactions_live.figures,
    "matching": transactions.matching,
}
SIZES = {size.name: size for size in (QUICK, FULL)}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 0 unless a result was wrong."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--size", choices=SIZES, default="full", help="default: %(default)s")
    parser.add_argument("--only", choices=BENCHMARKS, nargs="+", metavar="NAME", default=None)
    parser.add_argument("--rounds", type=int, help="instead of those of the size")
    parser.add_argument("--out", type=Path, default=ROOT / "out" / "bench", help="for the results")
    parser.add_argument(
        "--write-docs",
        action="store_true",
        help="write what was measured into docs/benchmarks.md and docs/plots",
    )
    given = parser.parse_args(arguments)
    keep_freed()  # as our programs that work through batches do
    size = SIZES[given.size]
    if given.rounds is not None:
        size = msgspec.structs.replace(size, rounds=max(1, given.rounds))
    # Wide enough for the tables also where there is no terminal.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 150)
    measured: list[report.Measured] = []
    for name in given.only or BENCHMARKS:
        start = perf_counter()
        about = report.machine()
        section = BENCHMARKS[name](size)
        report.show(section, console)
        measured.append(report.Measured(about, size, section))
        report.save(measured[-1], given.out)
        console.print(f"  measured in {perf_counter() - start:.0f} s\n")
    console.print(f"results: {given.out}")
    if given.write_docs:
        from bench import plots  # matplotlib takes a second

        plots.draw([one.section for one in measured], ROOT / "docs" / "plots")
        page = ROOT / "docs" / "benchmarks.md"
        text = report.page(measured, list(BENCHMARKS), page.read_text(encoding="utf-8"))
        page.write_text(text, encoding="utf-8")
        console.print("written: docs/benchmarks.md and docs/plots")
    return 0


if __name__ == "__main__":
    sys.exit(main())
