"""`concordant correlate`: relations of events in files, as JSON Lines on standard output."""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from concordant.cli import terminal
from concordant.cli.inputs import (
    Consumption,
    Events,
    Ids,
    Matching,
    Ordered,
    Seqs,
    Sources,
    Subscriptions,
    Times,
    TopicColumn,
    TopicName,
)
from concordant.correlate.columns import Batch
from concordant.correlate.costs import to_blame
from concordant.errors import UsageError
from concordant.files import describe, in_order, read_events
from concordant.files.relations import relation_line, relations_output
from concordant.files.subscriptions import read_subscriptions
from concordant.local import Relations, correlate_batch, plan_for
from concordant.memory import keep_freed
from concordant.model.subscription import Subscription


class EngineName(StrEnum):
    """Where the events are correlated."""

    LOCAL = "local"
    SPARK = "spark"


@terminal.guarded
def correlate(
    subscription: Subscriptions,
    events: Events,
    engine: Annotated[
        EngineName,
        typer.Option(help="Where to match: in this process, or on Spark (local[*], all cores)."),
    ] = EngineName.LOCAL,
    match: Matching = None,
    consume: Consumption = None,
    ordered: Ordered = False,
    topic: TopicName = None,
    topic_column: TopicColumn = "topic",
    time: Times = "time",
    source: Sources = "source",
    seq: Seqs = "seq",
    id: Ids = "id",
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            show_default=False,
            help="Write the relations to a new file (.jsonl, .parquet, .arrow) instead; it "
            "appears when it is complete.",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file of --out if it exists.")
    ] = False,
    schema: Annotated[
        bool,
        typer.Option("--schema", help="Show the topics and attributes of EVENTS, and stop."),
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, warnings or closing line.")
    ] = False,
    json: terminal.Json = False,
) -> None:
    """Find the relations that events form.

    Prints one line of JSON per relation, in the order of the events that completed them. `key` is
    there only with 'partition by'; `events` are ids, in the order of the subscription's slots.

    \b
    {"subscription":"rising","conjunction":1,"key":["ACME"],"position":1,"events":["q:4","q:7"]}

    \b
    Examples:
      concordant correlate 'Order then Payment partition by order_id within 10 min' orders.jsonl
      concordant correlate rising.sub quotes.parquet reports.parquet --out rising.parquet
      concordant correlate 'Order then Payment' Order=orders.csv Payment=payments.csv --time at
      concordant correlate rising.sub quotes.jsonl --match recent --consume slide
    """
    keep_freed()
    with _destination(None if schema else out, force) as deliver:
        subscriptions = read_subscriptions(subscription, match=match, consume=consume)
        batch = read_events(
            *events,
            topic=topic,
            topic_column=topic_column,
            time=time,
            source=source,
            seq=seq,
            id=id,
            ordered=ordered,
        )
        if schema:
            found = describe(batch)
            terminal.print_json(found) if json else terminal.print_text(str(found))
            return
        plan = plan_for(batch, subscriptions, question=subscription)
        start = clock.perf_counter()
        with terminal.progress("correlating", len(batch), shown=not quiet) as advance:
            if engine is EngineName.SPARK:
                relations = _on_spark(batch, subscriptions, subscription)
            else:
                relations = correlate_batch(in_order(batch), plan, progress=advance)
        seconds = clock.perf_counter() - start
        deliver(relations)
    if quiet:
        return
    dropped = sum(counters.capped for counters in relations.counters.values())
    if dropped:
        terminal.warn(
            f"{dropped:,} queued events were dropped by a cap, so relations may be missing: add "
            "'within', or raise 'cap' or 'cap all'",
            json=json,
        )
    for name, counters in relations.counters.items():
        if counters.over_budget:
            terminal.warn(
                f"{counters.over_budget:,} searches of {name!r} were long: "
                f"{to_blame(plan.by_name[name])}; add 'within', 'partition by' or a comparison",
                json=json,
            )
    if not json and terminal.err.is_terminal:
        where = f" → {out}" if out else ""
        rate = len(batch) / max(seconds, 1e-9)
        terminal.err.print(
            f"{relations.count_text} from {len(batch):,} events in {seconds:.2f} s "
            f"({rate:,.0f} events/s){where}",
            markup=False,
        )


def _on_spark(batch: Batch, subscriptions: Sequence[Subscription], question: str) -> Relations:
    with terminal.spark_needed():
        from concordant.spark.aside import Stop, aside
        from concordant.spark.batches import correlate_on
        from concordant.spark.session import session_of_command

    def work(stop: Stop) -> Relations:
        with session_of_command() as session:
            stop.session = session
            found, counters = correlate_on(session, batch, subscriptions, question=question)
            return Relations([found], counters)

    return aside(work)


@contextmanager
def _destination(path: Path | None, force: bool) -> Iterator[Callable[[Relations], None]]:
    """Where relations go; a path that cannot be written is refused before any work."""
    if path is None:
        yield lambda relations: terminal.print_lines(map(relation_line, relations))
    elif path.is_file() and not force:
        raise UsageError(
            "it exists already, and files are not overwritten",
            hint="choose another name, or replace it with --force",
            place=str(path),
        )
    else:
        with relations_output(path, overwrite=force) as write:
            yield write
