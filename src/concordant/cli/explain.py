"""`concordant explain`: why an event was, or was not, part of a relation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
from concordant.correlate.explain import explain as account_for
from concordant.files import in_order, read_events
from concordant.files.subscriptions import read_subscriptions
from concordant.local import plan_for
from concordant.model.event import Event


@terminal.guarded
def explain(
    subscription: Subscriptions,
    events: Events,
    event: Annotated[
        str,
        typer.Option(
            metavar="ID",
            show_default=False,
            help="The event to explain: its id, or source:seq where events have no id.",
        ),
    ],
    match: Matching = None,
    consume: Consumption = None,
    ordered: Ordered = False,
    topic: TopicName = None,
    topic_column: TopicColumn = "topic",
    time: Times = "time",
    source: Sources = "source",
    seq: Seqs = "seq",
    id: Ids = "id",
    json: terminal.Json = False,
) -> None:
    """Say why an event was, or was not, part of a relation.

    For each conjunction that asks for the event's topic: which predicate refused it, which
    relation took it, what removed it, or what it still waits for.

    \b
    Example:
      concordant explain rising.sub quotes.jsonl --event exchange:7
    """
    subscriptions = read_subscriptions(subscription, match=match, consume=consume)
    batch = in_order(
        read_events(
            *events,
            topic=topic,
            topic_column=topic_column,
            time=time,
            source=source,
            seq=seq,
            id=id,
            ordered=ordered,
        )
    )
    plan = plan_for(batch, subscriptions, question=subscription)
    with terminal.progress("replaying", len(batch)) as advance:
        accounts = account_for(plan, _counted(batch, advance), event)
    if json:
        terminal.print_json({"event": event, "accounts": accounts})
        return
    if not accounts:
        terminal.print_text(f"{event}: no subscription asks for its topic")
    for account in accounts:
        terminal.print_text(str(account))


def _counted(batch: Batch, advance: Callable[[int], None]) -> Iterator[Event]:
    for done, event in enumerate(batch.events(), 1):
        yield event
        if done % 1_000 == 0:
            advance(done)
