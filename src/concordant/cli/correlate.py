"""`concordant correlate`: relations of events in files, as JSON Lines on standard output."""

from __future__ import annotations

import sys
import time as clock
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from concordant.cli import terminal
from concordant.cli.inputs import (
    Events,
    Ids,
    Ordered,
    Seqs,
    Sources,
    Subscriptions,
    Times,
    TopicName,
)
from concordant.files import describe, read_events
from concordant.files.atomic import refuse_existing
from concordant.files.relations import relation_line, write_relations
from concordant.local import correlate as run
from concordant.local import read_subscriptions


class EngineName(StrEnum):
    """Where the events are correlated."""

    LOCAL = "local"


@terminal.guarded
def correlate(
    subscription: Subscriptions,
    events: Events,
    engine: Annotated[EngineName, typer.Option(help="Where to run.")] = EngineName.LOCAL,
    match: Annotated[
        str | None,
        typer.Option(help="Override the matching: first|recent [contiguous] [staged]."),
    ] = None,
    consume: Annotated[
        str | None, typer.Option(help="Override the consumption: prefix|matched|suffix|slide.")
    ] = None,
    ordered: Ordered = False,
    topic: TopicName = None,
    time: Times = "time",
    source: Sources = "source",
    seq: Seqs = "seq",
    id: Ids = "id",
    out: Annotated[
        Path | None,
        typer.Option(help="Write the relations to this file (.jsonl, .parquet, .arrow)."),
    ] = None,
    force: Annotated[bool, typer.Option(help="Replace the output file if it exists.")] = False,
    schema: Annotated[
        bool, typer.Option(help="Show the topics and attributes found in the events, and stop.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No closing line.")] = False,
    json: terminal.Json = False,
) -> None:
    """Find the relations that events form.

    Prints one line of JSON per relation, in the order of the completing events:

    {"subscription": "rising", "conjunction": 1, "key": ["ACME"], "position": 1, "events": [...]}

    Example: concordant correlate 'Order then Payment partition by order_id' orders.jsonl
    """
    del engine  # one engine so far; the option is part of the stable command line
    if out is not None:
        refuse_existing(out, overwrite=force)
    subscriptions = read_subscriptions(subscription, match=match, consume=consume)
    batch = read_events(
        *events, topic=topic, time=time, source=source, seq=seq, id=id, ordered=ordered
    )
    if schema:
        found = describe(batch)
        if json:
            terminal.print_json(found)
        else:
            terminal.out.print(str(found), markup=False)
        return
    start = clock.perf_counter()
    with terminal.progress("correlating", len(batch), shown=not quiet) as advance:
        relations = run(batch, subscriptions, progress=advance)
    seconds = clock.perf_counter() - start
    if out is None:
        sys.stdout.writelines(relation_line(relation) + "\n" for relation in relations)
        sys.stdout.flush()
    else:
        write_relations(relations, out, overwrite=force)
    dropped = sum(counters.capped for counters in relations.counters.values())
    if dropped and not quiet:
        terminal.err.print(
            f"[yellow]warning:[/] {dropped} queued events were dropped by a cap; relations may be "
            "missing. Add 'within', or raise 'cap' or 'cap all'."
        )
    if not quiet and not json and terminal.err.is_terminal:
        where = f" → {out}" if out else ""
        rate = len(batch) / max(seconds, 1e-9)
        terminal.err.print(
            f"{len(relations):,} relations from {len(batch):,} events "
            f"in {seconds:.2f} s ({rate:,.0f} events/s){where}",
            markup=False,
        )
