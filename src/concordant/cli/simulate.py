"""`concordant simulate`: run a scenario in virtual time, from one seed or from many."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from concordant.cli import terminal
from concordant.errors import UsageError
from concordant.files.atomic import atomic_output, refuse_existing
from concordant.files.history import write_history
from concordant.sim.metrics import Metrics, measure
from concordant.sim.run import Outcome
from concordant.sim.run import simulate as run_scenario
from concordant.sim.scenario import Scenario, read_scenario, scenario_text
from concordant.sim.story import Story
from concordant.sim.swarm import minimised

SEED_COUNT_MAX = 10_000_000
"""More seeds in one call are a typing error."""


@terminal.guarded
def simulate(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO", show_default=False, help="A scenario (.toml).")
    ],
    seed: Annotated[int | None, typer.Option(metavar="N", help="One run; 1 if not given.")] = None,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="A..B", help="Many runs, both ends included, on all cores."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            show_default=False,
            help="A new directory for the histories and metrics of the runs.",
        ),
    ] = None,
    story: Annotated[
        bool, typer.Option("--story", help="Tell what every node did, step by step.")
    ] = False,
    jobs: Annotated[
        int, typer.Option(metavar="N", help="Runs at a time; as many as cores if not given.")
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress bar.")] = False,
    json: terminal.Json = False,
) -> None:
    """Run a protocol in virtual time, with faults, and check what it promised.

    The same scenario and seed give the same history, byte for byte. If a promise is broken the exit
    code is 1, and the seed and the smallest scenario that was found are printed.

    \b
    Examples:
      concordant simulate sequencer.toml
      concordant simulate sequencer.toml --seed 7 --out run7
      concordant simulate sequencer.toml --seeds 1..1000
    """
    if seed is not None and seeds is not None:
        raise UsageError("give --seed or --seeds, not both")
    spec = read_scenario(scenario)
    numbers = range(1 if seed is None else seed, (1 if seed is None else seed) + 1)
    if seeds is not None:
        numbers = _numbers(seeds)
    if story and len(numbers) > 1:
        raise UsageError("a story is told of one run", hint="give --seed N")
    if out is not None:
        _make_directory(out)
    failed = (
        _one(spec, numbers[0], scenario, out=out, told=story, json=json)
        if len(numbers) == 1
        else _many(spec, numbers, scenario, out=out, jobs=jobs, quiet=quiet, json=json)
    )
    if failed:
        raise typer.Exit(terminal.EXIT_CHECK_FAILED)


def _numbers(text: str) -> range:
    first, dots, last = text.partition("..")
    if not dots or not first.strip().isdigit() or not last.strip().isdigit():
        raise UsageError(f"--seeds {text!r} is no range", hint="write it as in --seeds 1..1000")
    numbers = range(int(first), int(last) + 1)
    if not 0 < len(numbers) <= SEED_COUNT_MAX:
        raise UsageError(
            f"--seeds {text} has {len(numbers):,} seeds; there must be 1 to {SEED_COUNT_MAX:,}"
        )
    return numbers


def _make_directory(path: Path) -> None:
    refuse_existing(path / "metrics.jsonl")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"it cannot be made: {error.strerror}", place=str(path)) from None


# --- one run --------------------------------------------------------------------------------------


def _one(
    spec: Scenario, seed: int, path: Path, *, out: Path | None, told: bool, json: bool
) -> bool:
    story = Story()
    outcome = run_scenario(spec, seed=seed, watch=story.watch if told else None)
    metrics = measure(outcome)
    if told:
        terminal.print_lines(story.lines)
    if out is not None:
        _write(out, outcome)
        _write_metrics(out, [metrics])
    if json:
        terminal.print_json(_summary(outcome, metrics))
    else:
        terminal.print_text("\n".join(_lines(outcome, metrics)))
    failure = outcome.failure
    if failure is not None and not json:
        _print_smallest(spec, seed, path)
    return failure is not None


def _lines(outcome: Outcome, metrics: Metrics) -> Iterator[str]:
    yield (
        f"{metrics.run}: {metrics.protocol}, which promises {metrics.level}; "
        f"{metrics.ended_at_us / 1e6:.1f} s in {metrics.steps:,} steps"
    )
    yield (
        f"  published {metrics.published:,}, delivered {metrics.delivered:,} "
        f"({metrics.out_of_order:,} out of order), latency {metrics.latency_us_mean / 1e3:.1f} ms "
        f"(99 % within {metrics.latency_us_p99 / 1e3:.1f} ms)"
    )
    if metrics.faults:
        told = ", ".join(f"{name} {count}" for name, count in metrics.faults.items())
        yield f"  faults: {told}"
    for verdict in outcome.verdicts:
        yield "  " + str(verdict).replace("\n", "\n  ")


def _summary(outcome: Outcome, metrics: Metrics) -> dict[str, Any]:
    return {
        "ok": outcome.failure is None,
        "metrics": metrics,
        "verdicts": [
            {
                "property": one.name,
                "holds": one.holds,
                "checked": one.checked,
                "violation": one.violation,
            }
            for one in outcome.verdicts
        ],
    }


def _print_smallest(spec: Scenario, seed: int, path: Path) -> None:
    smallest = minimised(spec, seed)
    terminal.print_text(
        f"\nReplay it with: concordant simulate {path} --seed {seed}\n"
        f"The smallest scenario found that breaks the same promise with seed {seed}:\n\n"
        + scenario_text(smallest)
    )


def _write(out: Path, outcome: Outcome) -> None:
    write_history(outcome.rows, out / f"history-{outcome.seed}.jsonl")


def _write_metrics(out: Path, metrics: list[Metrics]) -> None:
    with atomic_output(out / "metrics.jsonl") as temporary, temporary.open("wb") as stream:
        stream.writelines(msgspec.json.encode(one) + b"\n" for one in metrics)


# --- many runs ------------------------------------------------------------------------------------

_CHUNK = 20


def _many(
    spec: Scenario,
    numbers: range,
    path: Path,
    *,
    out: Path | None,
    jobs: int,
    quiet: bool,
    json: bool,
) -> bool:
    run_scenario(spec, seed=numbers[0])  # a scenario that cannot run is refused here, once
    count = jobs if jobs > 0 else os.cpu_count() or 1
    chunks = [numbers[i : i + _CHUNK] for i in range(0, len(numbers), _CHUNK)]
    metrics: list[Metrics] = []
    failed: list[tuple[int, str]] = []
    with (
        terminal.progress("simulating", len(numbers), shown=not quiet) as advance,
        ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool,
    ):
        work = [pool.submit(partial(_chunk, spec, chunk, out)) for chunk in chunks]
        for done in as_completed(work):
            some, bad = done.result()
            metrics += some
            failed += bad
            advance(len(metrics))
    metrics.sort(key=lambda one: one.seed)
    failed.sort()
    if out is not None:
        _write_metrics(out, metrics)
    _print_many(spec, metrics, failed, path, json=json)
    return bool(failed)


def _chunk(
    spec: Scenario, numbers: range, out: Path | None
) -> tuple[list[Metrics], list[tuple[int, str]]]:
    metrics, failed = [], []
    for seed in numbers:
        outcome = run_scenario(spec, seed=seed)
        metrics.append(measure(outcome))
        if out is not None:
            _write(out, outcome)
        if outcome.failure is not None:
            failed.append((seed, str(outcome.failure)))
    return metrics, failed


def _print_many(
    spec: Scenario,
    metrics: list[Metrics],
    failed: list[tuple[int, str]],
    path: Path,
    *,
    json: bool,
) -> None:
    occurred = Counter(kind for one in metrics for kind in one.faults)
    totals = {
        "runs": len(metrics),
        "failed": len(failed),
        "published": sum(one.published for one in metrics),
        "delivered": sum(one.delivered for one in metrics),
        "out_of_order": sum(one.out_of_order for one in metrics),
        "steps": sum(one.steps for one in metrics),
    }
    if json:
        terminal.print_json(
            {
                "ok": not failed,
                **totals,
                "runs_with_fault": dict(sorted(occurred.items())),
                "failures": [{"seed": seed, "violation": text} for seed, text in failed],
            }
        )
        return
    terminal.print_text(
        f"{totals['runs']:,} runs of {spec.protocol}, {totals['failed']:,} broke a promise; "
        f"published {totals['published']:,}, delivered {totals['delivered']:,} "
        f"({totals['out_of_order']:,} out of order), {totals['steps']:,} steps"
    )
    for kind, count in sorted(occurred.items()):
        terminal.print_text(f"  {kind:<15} in {100 * count / len(metrics):.0f} % of the runs")
    if failed:
        seed, text = failed[0]
        terminal.print_text(f"\nseed {seed}: {text}")
        _print_smallest(spec, seed, path)
