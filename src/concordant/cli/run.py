"""`concordant run`: a pipeline from its sources through Spark to its sinks."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.live import Live
from rich.table import Table

from concordant.cli import terminal

if TYPE_CHECKING:
    from concordant.spark.aside import Stop
    from concordant.spark.monitor import Told
    from concordant.spark.pipeline import Pipeline, Source
    from concordant.spark.run import Report


@terminal.guarded
def run(
    pipeline: Annotated[
        Path, typer.Argument(metavar="PIPELINE", show_default=False, help="A pipeline file (TOML).")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Check the file, say what it would do, and stop.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show what Spark prints, too.")
    ] = False,
    json: terminal.Json = False,
) -> None:
    """Run a pipeline: sources → Spark → correlation → sinks.

    Everything the file can get wrong is told before Spark starts. Ctrl-C stops a stream cleanly,
    and the next run goes on from its checkpoint.

    \b
    Example:
      concordant run market.toml
    """
    with terminal.spark_needed():
        from concordant.spark.aside import aside
        from concordant.spark.pipeline import read_pipeline
    found = read_pipeline(pipeline)
    if check:
        if json:
            terminal.print_json(found.summary)
        else:
            _print_summary(pipeline, found.summary)
        return
    try:
        report = aside(
            lambda stop: _run(found, stop, verbose, json), stopping=lambda: _stopping(json)
        )
    except KeyboardInterrupt:
        if found.stream is None:
            raise
        raise KeyboardInterrupt("the next run goes on from the checkpoint") from None
    if json:
        terminal.print_json(_plain(report))
    else:
        _print(report)


def _stopping(json: bool) -> None:
    if not json and terminal.err.is_terminal:
        terminal.err.print("stopping; Ctrl-C again ends it at once")


def _print_summary(path: Path, summary: dict[str, Any]) -> None:
    terminal.print_text(f"{path}: ok")
    for name, value in summary.items():
        if isinstance(value, list) and isinstance(value[0], dict):
            for number, one in enumerate(value, 1):
                terminal.print_text(f"{name[:-1]} {number}: {_settings(one)}")
        else:
            listed = ", ".join(value) if isinstance(value, list) else value
            terminal.print_text(
                f"{name}: {_settings(value) if isinstance(value, dict) else listed}"
            )


def _settings(table: dict[str, Any]) -> str:
    """`kind` alone, the others with their names."""
    return ", ".join(
        str(value) if key == "kind" else f"{key} {value}" for key, value in table.items()
    )


def _run(pipeline: Pipeline, stop: Stop, verbose: bool, json: bool) -> Report:
    from concordant.spark.run import run_pipeline
    from concordant.spark.session import session_of_command

    opened = session_of_command(
        pipeline.spark.master,
        name=pipeline.name,
        options=pipeline.session_options(),
        verbose=verbose,
    )
    with contextlib.ExitStack() as stack:
        with _status(json, "starting Spark"):
            stop.session = stack.enter_context(opened)
        told = stack.enter_context(_progress(json))
        return run_pipeline(
            pipeline,
            stop.session,
            generate=lambda source: _generated(pipeline, source),
            show=_shown if not json else lambda rows: None,
            told=told,
            stop=stop,
        )


def _generated(pipeline: Pipeline, source: Source) -> str:
    """The folder of a generated market day; made once, and again only if it should differ."""
    from concordant.evaluate.market_files import market_folder

    path = pipeline.at(source.path or pipeline.generated)
    return market_folder(Path(path), events=source.events, seed=source.seed)


@contextlib.contextmanager
def _status(json: bool, text: str) -> Iterator[None]:
    if json or not terminal.err.is_terminal:
        yield
        return
    with terminal.err.status(text):
        yield


@contextlib.contextmanager
def _progress(json: bool) -> Iterator[Told]:
    """A line that follows the micro-batches, on a terminal; nothing elsewhere."""
    if json or not terminal.err.is_terminal:
        yield lambda line: None
        return
    with Live(console=terminal.err, transient=True, refresh_per_second=4) as live:
        live.update("reading")
        yield lambda line: live.update(_line(line))


def _line(line: dict[str, Any]) -> str:
    if "tasks" in line:
        return f"stage {line['stage']}: {line['tasks_done']:,} of {line['tasks']:,} tasks done"
    from concordant.spark.step import RELATIONS

    relations = sum(n for key, n in line.items() if key.startswith(RELATIONS))
    lag = f"lag {line['lag_us'] / 1e6:,.1f} s, " if "lag_us" in line else ""
    return (
        f"step {line['step']}: {line.get('events', 0):,} events in, {relations:,} relations out, "
        f"{line['rows_per_second']:,.0f} rows/s, {line['seconds']:.1f} s, {lag}"
        f"late {line.get('late', 0):,}, state {line.get('state_bytes', 0) / 1e6:,.1f} MB"
    )


def _shown(rows: list[dict[str, Any]]) -> None:
    if not rows:
        return
    table = Table(box=None)
    for heading in ("subscription", "key", "position", "at", "events"):
        table.add_column(heading)
    for row in rows:
        table.add_row(
            row["subscription"],
            ", ".join(str(one) for one in row["key"]),
            str(row["position"]),
            row["at"],
            " ".join(row["events"]),
        )
    terminal.out.print(table)


def _print(report: Report) -> None:
    table = Table(title=report.name, title_justify="left")
    table.add_column("subscription")
    for heading in ("relations", "a second", *(["since the beginning"] * bool(report.before))):
        table.add_column(heading, justify="right")
    for name, number in report.relations_now.items():
        numbers = [f"{number:,}", f"{number / report.seconds:,.1f}"]
        if report.before:
            numbers.append(f"{report.relations[name]:,}")
        table.add_row(name, *numbers)
    terminal.out.print(table)
    terminal.print_text(_rows(report))
    terminal.print_text(
        f"{report.batches:,} micro-batch{'es' * (report.batches != 1)}; this run took "
        f"{report.seconds:.1f} s ({report.rate:,.0f} rows/s)"
    )
    if report.ended:
        terminal.print_text(f"stopped by {report.ended}; the next run goes on from the checkpoint")
    for text in _warnings(report):
        terminal.warn(text, json=False)
    for promise in report.promises:
        terminal.print_text(f"kept: {promise}")
    for names, kept in _by_guarantees(report).items():
        terminal.print_text(f"kept by {names}: {kept}")
    for path in report.outputs:
        terminal.print_text(f"output: {os.path.relpath(path)}")


def _warnings(report: Report) -> list[str]:
    """What may be wrong with results, and what would help."""
    counts, found = report.counts, []
    if report.unheard:
        topics = ", ".join(f"'{one}'" for one in report.unheard)
        found.append(f"no event came that a subscription can use of {topics}: is the name right?")
    if counts.get("late"):
        found.append(
            f"{counts['late']:,} events came too late, and relations may be missing: wait longer "
            "(watermark, idle), or name all sources"
        )
    if counts.get("capped"):
        found.append(
            f"{counts['capped']:,} queued events were dropped by a cap, so relations may be "
            "missing: add 'within', or raise 'cap' or 'cap all'"
        )
    for name, number in report.long_searches.items():
        found.append(
            f"{number:,} searches of {name!r} were long: add 'within', 'partition by' or a "
            "comparison"
        )
    return found


def _rows(report: Report) -> str:
    """Where every row went."""
    counts = report.counts
    parts = [f"{counts.get('events', 0):,} to kernels"]
    if report.set_count > 1:
        parts[0] += f" (one for each of {report.set_count} sets of subscriptions that can use it)"
    if report.filtered is not None:
        parts.append(f"{report.filtered:,} that no subscription can use, filtered before Python")
    if counts.get("held"):
        parts.append(f"{counts['held']:,} wait for their release")
    parts += [f"{number:,} {what}" for what, number in report.set_aside.items()]
    read = "rows read" if report.read is None else f"{report.read:,} rows read"
    return f"{read}: {', '.join(parts)}"


def _by_guarantees(report: Report) -> dict[str, str]:
    """Names of subscriptions that keep the same, and what they keep."""
    alike: dict[str, list[str]] = {}
    for name, one in report.guarantees.items():
        kept = (
            f"{', '.join(one['kept']) or 'nothing'} (loses {', '.join(one['lost']) or 'nothing'})"
        )
        alike.setdefault(kept, []).append(name)
    return {", ".join(names): kept for kept, names in alike.items()}


def _plain(report: Report) -> dict[str, Any]:
    return {
        "name": report.name,
        "seconds": round(report.seconds, 3),
        "batches": report.batches,
        "read": report.read,
        "filtered": report.filtered,
        "ended": report.ended,
        "relations": report.relations,
        "relations_now": report.relations_now,
        "warnings": _warnings(report),
        "counts": report.counts,
        "kept": report.promises,
        "guarantees": report.guarantees,
        "outputs": report.outputs,
    }
