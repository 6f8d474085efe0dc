"""Arguments that several commands share: a subscription with its policy, and events in files."""

from __future__ import annotations

from typing import Annotated

import typer

Subscriptions = Annotated[
    str,
    typer.Argument(
        metavar="SUB",
        show_default=False,
        help="What to look for: a file (an existing one, or any name that ends in .sub), "
        "or the subscription's text itself.",
    ),
]
Events = Annotated[
    list[str],
    typer.Argument(
        metavar="EVENTS",
        show_default=False,
        help="Files of events (.jsonl, .csv, .parquet, .arrow; .jsonl.gz, .csv.gz). "
        "Write Topic=FILE for a file whose events are all of one topic.",
    ),
]
Matching = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="Which events win, in place of what SUB says: first or recent, then perhaps "
        "contiguous and staged, as in 'recent contiguous'. The codes FR, MR, FRC and MRC "
        "mean the same.",
    ),
]
Consumption = Annotated[
    str | None,
    typer.Option(
        metavar="POLICY",
        help="What a relation uses up, in place of what SUB says: prefix, matched, suffix or "
        "slide; or the codes PI, I, IP and FP.",
    ),
]
Ordered = Annotated[
    bool,
    typer.Option(
        "--ordered",
        help="Each file is already sorted by time, source and seq: refuse it if it is not.",
    ),
]
TopicName = Annotated[
    str | None,
    typer.Option(metavar="TOPIC", help="The topic of events in files without a topic column."),
]
TopicColumn = Annotated[
    str, typer.Option(metavar="COLUMN", help="The column that names each event's topic.")
]
Times = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help="The column with the time: ISO 8601, or microseconds since 1970 (UTC).",
    ),
]
Sources = Annotated[
    str,
    typer.Option(
        metavar="COLUMN", help="The column with the event's source; without one, the file's path."
    ),
]
Seqs = Annotated[
    str,
    typer.Option(
        metavar="COLUMN",
        help="The column with the number that the source gave; without one, the line or row.",
    ),
]
Ids = Annotated[
    str,
    typer.Option(metavar="COLUMN", help="The column with the event's id; without one, source:seq."),
]
