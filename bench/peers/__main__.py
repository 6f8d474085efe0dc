"""Run the comparisons: `python -m bench.peers [--only flink|jgroups] [--quick] [--write-docs] …`.

Exit codes: 0 measured, 1 the two sides disagree, 2 a peer or Java cannot be had, 3 a peer failed,
130 interrupted. Nothing passes or fails by time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

import bench.report
from bench.peers import agreement, environment, groups, groups_page, report
from bench.peers.flink import MODES, Flink, FlinkError
from bench.peers.kernel_side import Concordant
from bench.peers.quotes import SYMBOLS, Triple, spaced, write_day, write_quotes
from bench.peers.spark_side import ConcordantOnSpark

PARALLELISMS = (1, 2)
QUICK_ROWS = 100_000
FULL_ROWS = 1_000_000
ROUNDS = 3
LARGER = 4
"""The larger file has so many times the rows, and one round: what a job costs before its first row
is less of it."""
TURNS = 3
"""Of Concordant, before and after each of Flink's."""

_PAGE = Path("docs/benchmarks-peers.md")


class Disagreement(Exception):  # noqa: N818 - a finding, and no error of the program
    """The two sides found different matches."""


def main(arguments: list[str] | None = None) -> int:
    given = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    try:
        for peer in given.only or PEERS:
            PEERS[peer](given, console)
    except environment.Unavailable as missing:
        return _complain(str(missing), 2)
    except (Disagreement, groups.DifferentOrder) as found:
        return _complain(str(found), 1)
    except FlinkError as error:
        return _complain(f"Flink failed: {error}", 3)
    except groups.GroupError as error:
        return _complain(str(error), 3)
    except KeyboardInterrupt:
        return _complain("interrupted; nothing more was written", 130)
    return 0


def _flink(given: argparse.Namespace, console: Console) -> None:
    """Flink SQL beside the kernel and Spark."""
    result = _compare(given, console)
    for table in report.tables(result):
        console.print(table)
    for line in report.goals(result):
        console.print(line)
    given.out.mkdir(parents=True, exist_ok=True)
    kept = given.out / f"peers-{result.size}.json"
    kept.write_bytes(report.as_json(result))
    console.print(f"measured: {kept}")
    if given.write_docs:
        _PAGE.write_text(report.page(result), encoding="utf-8")
        console.print(f"page: {_PAGE}")


def _groups(given: argparse.Namespace, console: Console) -> None:
    """JGroups beside our total orders."""
    rounds, seconds = (1, 0.5) if given.quick else (given.rounds, 1.5)
    about = bench.report.machine() | {"java": environment.java(), "rounds": rounds}
    section = asyncio.run(
        groups.compare(rounds=rounds, seconds=seconds, quick=given.quick, say=console.print)
    )
    bench.report.show(section, console)
    if given.write_docs:
        groups_page.PAGE.write_text(groups_page.page(section, about), encoding="utf-8")
        console.print(f"page: {groups_page.PAGE}")


PEERS: dict[str, Callable[[argparse.Namespace, Console], None]] = {
    "flink": _flink,
    "jgroups": _groups,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench.peers", description=__doc__)
    parser.add_argument("--only", choices=PEERS, nargs="+", metavar="PEER", default=None)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS:,} rows, few members")
    parser.add_argument("--rows", type=int, metavar="N", help=f"Flink; default: {FULL_ROWS:,}")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("out/bench"), metavar="DIR")
    parser.add_argument("--write-docs", action="store_true", help="write their pages in docs")
    return parser


def _compare(given: argparse.Namespace, console: Console) -> report.Result:
    versions = {"Java": environment.java()}
    python = environment.flink_python()
    rows = given.rows or (QUICK_ROWS if given.quick else FULL_ROWS)
    with (
        tempfile.TemporaryDirectory() as folder,
        Flink(python) as flink,
        Concordant(PARALLELISMS[0]) as one,
        Concordant(PARALLELISMS[1]) as two,
        ConcordantOnSpark(PARALLELISMS[0]) as spark_one,
        ConcordantOnSpark(PARALLELISMS[1]) as spark_two,
    ):
        ours = dict(zip(PARALLELISMS, (one, two), strict=True))
        spark = dict(zip(PARALLELISMS, (spark_one, spark_two), strict=True))
        path = Path(folder, "quotes.csv")
        write_day(path, rows=rows, seed=given.seed)
        versions = {"Flink": flink.version(), **versions, "Python": platform.python_version()}
        versions |= {name: version(name) for name in ("numpy", "numba", "pyarrow")}
        starts = _starts(Path(folder, "few.csv"), flink, spark)
        console.print("comparing matches on small files")
        small = agreement.by_hand(flink, one)
        for compared in small:
            if not compared.agree:
                raise Disagreement(compared.text())
        differ = agreement.where_they_differ(flink, one)
        for compared in [*small, *differ]:
            console.print(f"  {compared.text()}", markup=False)
        matches = _same_matches(path, flink, ours, spark, console)
        pairs = _rounds(path, given.rounds, flink, ours, spark, console)
        console.print(f"the larger file, {LARGER * rows:,} rows")
        write_day(path, rows=LARGER * rows, seed=given.seed)
        larger = _rounds(path, 1, flink, ours, spark, console)
    return report.Result(
        size="quick" if given.quick else "full",
        rows=rows,
        symbols=SYMBOLS,
        seed=given.seed,
        matches=matches,
        versions=versions,
        cores=os.cpu_count() or 1,
        load=os.getloadavg()[0],
        agree=[_shown(compared) for compared in small],
        differ=[_shown(compared) for compared in differ],
        pairs=pairs,
        larger_rows=LARGER * rows,
        larger=larger,
        starts=starts,
    )


def _starts(path: Path, flink: Flink, spark: dict[int, ConcordantOnSpark]) -> dict[str, float]:
    """What the first question to a JVM takes longer than the second, on a file of three rows."""
    write_quotes(path, spaced([("S", 1.0), ("S", 2.0), ("S", 3.0)]))
    asked: dict[str, Callable[[], float]] = {
        "Flink": lambda: flink.match(path, mode=MODES[0], parallelism=1).wall_seconds
    }
    for parallelism, side in spark.items():
        asked[f"Spark × {parallelism}"] = partial(side.seconds, path)
    found = {}
    for name, ask in asked.items():
        start = time.perf_counter()
        ask()
        found[name] = time.perf_counter() - start - ask()
    return found


def _same_matches(
    path: Path,
    flink: Flink,
    ours: dict[int, Concordant],
    spark: dict[int, ConcordantOnSpark],
    console: Console,
) -> int:
    """The number of matches in the measured file, after all sides gave the same ones.

    It also warms up: every query and every process has then taken the whole file once.
    """
    expected: list[Triple] | None = None
    for parallelism, side in ours.items():
        found = {"Concordant": side.triples(path), "Spark": spark[parallelism].triples(path)}
        spark[parallelism].run(path)
        for mode in MODES:
            flink.scan(path, mode=mode, parallelism=parallelism)
            found[mode] = flink.triples(path, mode=mode, parallelism=parallelism)
        for name, triples in found.items():
            console.print(f"  measured file, {name} × {parallelism}: {len(triples):,} matches")
            expected = triples if expected is None else expected
            if triples != expected:
                odd = sorted(set(triples) ^ set(expected))[:3]
                raise Disagreement(f"{name} × {parallelism} differs in {odd}")
    return len(expected or [])


def _rounds(
    path: Path,
    rounds: int,
    flink: Flink,
    ours: dict[int, Concordant],
    spark: dict[int, ConcordantOnSpark],
    console: Console,
) -> list[report.Pair]:
    pairs = [report.Pair(mode, parallelism, []) for mode in MODES for parallelism in PARALLELISMS]
    for number in range(rounds):
        for pair in pairs:
            side = ours[pair.parallelism]
            scan = flink.scan(path, mode=pair.mode, parallelism=pair.parallelism)
            mine = [side.run(path) for _ in range(TURNS)]
            match = flink.match(path, mode=pair.mode, parallelism=pair.parallelism)
            mine += (side.run(path) for _ in range(TURNS))
            on_spark = spark[pair.parallelism].run(path)
            pair.rounds.append(turn := report.Round(scan, match, mine, on_spark))
            console.print(
                f"  round {number + 1}, {pair.mode} × {pair.parallelism}: "
                f"Flink {scan.seconds:.2f} s scan, {match.seconds:.2f} s total; "
                f"Concordant {turn.our(lambda run: run.scan_seconds):.2f} s scan, "
                f"{turn.our(lambda run: run.match_seconds):.3f} s match, "
                f"on Spark {', '.join(f'{s:.2f} s {way}' for way, s in on_spark.seconds.items())}"
            )
    return pairs


def _shown(compared: agreement.Compared) -> report.Agreement:
    return report.Agreement(
        f"{compared.name}: {compared.values}",
        agreement.shown(compared.flink),
        agreement.shown(compared.concordant),
    )


def _complain(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
