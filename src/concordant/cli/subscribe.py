"""`concordant subscribe`: deliveries of a bus on standard output, one JSON object a line."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from concordant.bus import Bus, Delivery
from concordant.cli import addresses, terminal
from concordant.errors import UsageError
from concordant.files.toml import read_toml
from concordant.model.kind import Kind


@terminal.guarded
def subscribe(
    bus: addresses.Url,
    text: Annotated[
        str,
        typer.Argument(
            metavar="SUB",
            show_default=False,
            help="Topics ('Order, Payment') or a pattern ('Order then Payment').",
        ),
    ],
    order: Annotated[
        str,
        typer.Option(metavar="ORDER", help="none, fifo, causal, agreed, total or total-strict."),
    ] = "fifo",
    strategy: Annotated[
        str, typer.Option(metavar="STRATEGY", help="How to realise it, where there is a choice.")
    ] = "",
    name: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Keep the subscription under this name: the next time, it goes on from here.",
        ),
    ] = "",
    count: Annotated[
        int, typer.Option(metavar="N", help="Stop after so many deliveries; 0 is never.")
    ] = 0,
    slow: Annotated[
        str,
        typer.Option(metavar="WHAT", help="Who does not keep up is 'cut' off, or 'throttle's."),
    ] = "cut",
    topics: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Kinds of attributes by topic, for a pattern: TOML, one table per topic.",
        ),
    ] = None,
    token: addresses.Token = "",
    authority: addresses.Authority = "",
    json: terminal.Json = False,
) -> None:
    """Print what is delivered: one JSON object per line, until Ctrl-C.

    An event has topic, source, seq, time and its attributes; a relation has its events. Both have
    the position, and in_order, which is false for what came too late for the promised order.

    \b
    Examples:
      concordant subscribe tcp://127.0.0.1:7400 'Order, Payment'
      concordant subscribe tcp://127.0.0.1:7400 'Order, Payment' --order total-strict --name audit
    """
    if slow not in ("cut", "throttle"):
        raise UsageError(f"--slow {slow}", hint="--slow cut, or --slow throttle")
    kinds = read_toml(topics, dict[str, dict[str, Kind]], what="file of topics") if topics else {}
    asked = {
        "order": order,
        "strategy": strategy,
        "name": name,
        "slow": slow,
        "topics": {topic: {key: str(k) for key, k in of.items()} for topic, of in kinds.items()},
    }
    opened = Bus.open(bus, token=token, authority=authority)
    try:
        asyncio.run(_subscribe(opened, text, asked, count, json))
    except KeyboardInterrupt:  # the usual way to end it
        raise typer.Exit(terminal.EXIT_INTERRUPTED) from None


async def _subscribe(bus: Bus, text: str, asked: dict[str, Any], count: int, json: bool) -> None:
    subscription = bus.subscribe(text, **asked)
    async with bus, subscription as found:
        if not json:
            terminal.err.print(f"subscribed: {text}", markup=False)
        printed = 0
        async for delivery in found:
            terminal.print_lines([line_of(delivery)])
            printed += 1
            if printed == count:
                return


def line_of(delivery: Delivery) -> str:
    """A delivery as one line of JSON."""
    head: dict[str, Any] = {"position": delivery.position, "in_order": delivery.in_order}
    if delivery.subscription:
        head["subscription"] = delivery.subscription
        head["conjunction"] = delivery.conjunction
        if delivery.key:
            head["key"] = delivery.key
        body: dict[str, Any] = {"events": [_row(event) for event in delivery.events]}
    else:
        body = _row(delivery.events[0])
    return msgspec.json.encode({**head, **body}).decode()


def _row(event: Any) -> dict[str, Any]:
    row = {"topic": event.topic, "source": event.source, "seq": event.seq, "time": event.time}
    if event.id != f"{event.source}:{event.seq}":
        row["id"] = event.id
    return {**row, **event.attributes}
