"""The main job of `make run`: a generated market day, correlated with five subscriptions.

    python -m concordant.evaluate.market_day --out out/market-day

It makes the day (`market`), asks the questions of `market.sub` one by one, so that each has a rate
of its own, and leaves a folder: the events, the relations of each question as Parquet and JSON
Lines, and `run.json` with what was measured. The folder appears whole or not at all, and takes the
place of one that an earlier run left; any other folder is left alone.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from concordant.correlate.columns import Batch
from concordant.correlate.kernel import warm_up
from concordant.errors import UsageError
from concordant.evaluate.market import market_day
from concordant.files import write_events
from concordant.files.relations import write_relations
from concordant.language import parse
from concordant.local import correlate_batch, plan_for
from concordant.model.subscription import Policy, Subscription

EVENTS_DEFAULT = 1_000_000
"""Events of the day: a second or two of matching."""

SEED_DEFAULT = 1

_MADE_BY = "concordant.evaluate.market_day"
_SUMMARY = "run.json"

Advance = Callable[[int], None]


class Measured(msgspec.Struct, frozen=True):
    """One subscription's run."""

    subscription: str
    policy: str
    relations: int
    seconds: float
    events_per_second: float


class Summary(msgspec.Struct, frozen=True):
    """One run, as `run.json` keeps it."""

    made_by: str
    events: int
    seed: int
    runs: tuple[Measured, ...]


def questions() -> tuple[Subscription, ...]:
    """The subscriptions of `market.sub`."""
    text = resources.files(__package__).joinpath("market.sub").read_text(encoding="utf-8")
    return parse(text, place="market.sub")


def run(
    out: Path, *, events: int = EVENTS_DEFAULT, seed: int = SEED_DEFAULT, console: Console
) -> Summary:
    """Make the day, correlate it and leave the folder `out`; the console is for progress."""
    with _new_folder(out) as folder, _progress(console) as start:
        start("making the day", events)
        day = market_day(events, seed=seed)
        write_events(day, folder / "events.parquet")
        start("loading the kernel", 1)
        warm_up()
        runs = tuple(
            _measured(day, subscription, folder, start(subscription.name, events))
            for subscription in questions()
        )
        summary = Summary(_MADE_BY, events, seed, runs)
        encoded = msgspec.json.format(msgspec.json.encode(summary))
        (folder / _SUMMARY).write_bytes(encoded + b"\n")
    return summary


def _measured(day: Batch, subscription: Subscription, folder: Path, advance: Advance) -> Measured:
    plan = plan_for(day, [subscription])
    start = time.perf_counter()
    relations = correlate_batch(day, plan, progress=advance)
    seconds = time.perf_counter() - start
    for extension in ("parquet", "jsonl"):
        write_relations(relations, folder / f"{subscription.name}.{extension}")
    return Measured(
        subscription.name,
        _policy_text(subscription.policy),
        len(relations),
        round(seconds, 6),
        round(len(day) / max(seconds, 1e-9), 1),
    )


def _policy_text(policy: Policy) -> str:
    return str(policy).removeprefix("match ").replace(" consume ", ", ")


# --- the folder -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """A folder that becomes `out` at the end of the block, or vanishes on any error."""
    _refuse_foreign(out)
    token = secrets.token_hex(6)
    temporary = out.with_name(f".{out.name}.{token}")
    try:
        temporary.mkdir(parents=True)
    except OSError as error:
        raise UsageError(
            f"it cannot be made: {error.strerror}",
            hint="choose a place where you may write",
            place=str(out),
        ) from None
    try:
        yield temporary
        _refuse_foreign(out)
        _take_name(temporary, out, out.with_name(f".{out.name}.{token}.old"))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _take_name(temporary: Path, out: Path, old: Path) -> None:
    """Give `temporary` the name `out`; the folder of an earlier run goes only after that."""
    if not out.exists():
        temporary.rename(out)
        return
    out.rename(old)
    try:
        temporary.rename(out)
    except BaseException:
        old.rename(out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _refuse_foreign(out: Path) -> None:
    """Only what an earlier run left may be replaced: nothing else is ours to remove."""
    if not out.exists() and not out.is_symlink():
        return
    try:
        made_by = msgspec.json.decode((out / _SUMMARY).read_bytes(), type=Summary).made_by
    except (OSError, msgspec.DecodeError):
        made_by = ""
    if made_by != _MADE_BY:
        raise UsageError(
            "it exists, and no earlier run of the market day left it",
            hint="choose another folder, or remove it first",
            place=str(out),
        )


# --- what a person sees ---------------------------------------------------------------------------


@contextlib.contextmanager
def _progress(console: Console) -> Iterator[Callable[[str, int], Advance]]:
    """A function that begins a new bar; on a terminal only."""
    if not console.is_terminal:
        yield lambda _label, _total: lambda _done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bars:

        def start(label: str, total: int) -> Advance:
            for task in bars.task_ids:
                bars.remove_task(task)
            task = bars.add_task(label, total=total)
            return lambda done: bars.update(task, completed=done)

        yield start


def _table(summary: Summary) -> Table:
    title = f"A market day of {summary.events:,} events (seed {summary.seed})"
    table = Table(title=title, title_justify="left")
    table.add_column("subscription")
    table.add_column("policy")
    for heading in ("relations", "time", "events/s"):
        table.add_column(heading, justify="right")
    for one in summary.runs:
        table.add_row(
            one.subscription,
            one.policy,
            f"{one.relations:,}",
            f"{one.seconds:.2f} s",
            f"{one.events_per_second:,.0f}",
        )
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 ok, 2 bad usage, 3 a subscription found nothing or the run failed, 130."""
    parser = argparse.ArgumentParser(
        prog="python -m concordant.evaluate.market_day",
        description="Correlate a generated market day with five subscriptions.",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write")
    parser.add_argument(
        "--events", type=int, default=EVENTS_DEFAULT, metavar="N", help="default: %(default)s"
    )
    parser.add_argument(
        "--seed", type=int, default=SEED_DEFAULT, metavar="S", help="default: %(default)s"
    )
    given = parser.parse_args(arguments)
    console = Console(highlight=False)
    try:
        if given.events < 1 or given.seed < 0:
            raise UsageError("a day has at least one event, and a seed is not negative")
        summary = run(given.out, events=given.events, seed=given.seed, console=console)
    except UsageError as error:
        return _complain(str(error), 2)
    except KeyboardInterrupt:
        return _complain("interrupted; nothing was written", 130)
    except (OSError, MemoryError) as error:
        return _complain(str(error) or type(error).__name__, 3)
    console.print(_table(summary))
    console.print(
        f"events: {given.out / 'events.parquet'}\n"
        f"relations: {given.out}/NAME.parquet and {given.out}/NAME.jsonl\n"
        f"measured: {given.out / _SUMMARY}",
        soft_wrap=True,
        markup=False,
    )
    silent = [one.subscription for one in summary.runs if not one.relations]
    if silent:
        return _complain(
            f"no relation for {', '.join(silent)}: the day is too short for what it asks; "
            "give more --events",
            3,
        )
    return 0


def _complain(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
