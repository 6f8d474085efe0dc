"""Arguments that several commands share: a subscription and events in files."""

from __future__ import annotations

from typing import Annotated

import typer

Subscriptions = Annotated[
    str,
    typer.Argument(metavar="SUB", help="A .sub file, or the subscription's text itself."),
]
Events = Annotated[
    list[str],
    typer.Argument(
        metavar="EVENTS...",
        help="Files (.jsonl, .csv, .parquet, .arrow), or Topic=FILE for a file of one topic.",
    ),
]
Ordered = Annotated[
    bool,
    typer.Option(
        "--ordered", help="The files are already ordered by (time, source, seq): check, not sort."
    ),
]
TopicName = Annotated[
    str | None, typer.Option(help="The topic of files that have no topic column.")
]
Times = Annotated[str, typer.Option(metavar="COLUMN", help="The column with the time.")]
Sources = Annotated[str, typer.Option(metavar="COLUMN", help="The column with the source.")]
Seqs = Annotated[str, typer.Option(metavar="COLUMN", help="The column with the sequence number.")]
Ids = Annotated[str, typer.Option(metavar="COLUMN", help="The column with the event's id.")]
