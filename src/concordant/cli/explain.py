"""`concordant explain`: why an event was, or was not, part of a relation."""

from __future__ import annotations

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
from concordant.correlate.explain import explain as account_for
from concordant.files import in_order, read_events
from concordant.local import plan_for, read_subscriptions


@terminal.guarded
def explain(
    subscription: Subscriptions,
    events: Events,
    event: Annotated[str, typer.Option(metavar="ID", help="The event to explain.")],
    ordered: Ordered = False,
    topic: TopicName = None,
    time: Times = "time",
    source: Sources = "source",
    seq: Seqs = "seq",
    id: Ids = "id",
    json: terminal.Json = False,
) -> None:
    """Say why an event was, or was not, part of a relation.

    Example: concordant explain rising.sub quotes.jsonl --event exchange:7
    """
    subscriptions = read_subscriptions(subscription)
    batch = in_order(
        read_events(*events, topic=topic, time=time, source=source, seq=seq, id=id, ordered=ordered)
    )
    accounts = account_for(plan_for(batch, subscriptions), batch.events(), event)
    if json:
        terminal.print_json({"event": event, "accounts": accounts})
        return
    if not accounts:
        terminal.out.print(f"{event}: no conjunction asks for its topic", markup=False)
    for account in accounts:
        terminal.out.print(str(account), markup=False)
