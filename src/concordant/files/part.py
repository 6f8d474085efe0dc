"""What every reader hands on: one input as a batch, and the places of its rows.

A part knows which columns were given and which were filled, because joining several parts depends
on it. It does not know its format any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np

from concordant.correlate.columns import Array, Batch, Column
from concordant.errors import UsageError
from concordant.model.kind import RESERVED, Kind
from concordant.model.topic import Topic, schemas

TOPIC_COUNT_MAX = 10_000
"""More distinct topics than this is almost surely an id taken for a topic, and a schema is kept for
each; an input that reaches it is refused."""

DEPTH_MAX = 16
"""Nested attributes become dotted names of at most this many parts; deeper input is refused, as
nobody writes such names in a subscription."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where rows come from: the input's name, and the line (or row number) of each row."""

    name: str
    line: Callable[[int], int]

    def place(self, row: int | None = None, column: str = "") -> str:
        line = "" if row is None else f":{self.line(row)}"
        return f"{self.name}{line}:{column}" if column else f"{self.name}{line}"

    def refuse(
        self, message: str, *, hint: str = "", row: int | None = None, column: str = ""
    ) -> NoReturn:
        raise UsageError(message, hint=hint, place=self.place(row, column))


@dataclass(frozen=True, slots=True)
class Names:
    """Which columns hold the reserved values."""

    topic: str = "topic"
    source: str = "source"
    seq: str = "seq"
    time: str = "time"
    id: str = "id"

    def check(self, found: Sequence[str], origin: Origin) -> None:
        """Refuse input without time, or without a column that the caller asked for by name."""
        default = Names()
        for role in ("time", "topic", "source", "seq", "id"):
            name = getattr(self, role)
            if name in found or (role != "time" and name == getattr(default, role)):
                continue
            origin.refuse(
                f"there is no column '{name}' for the {role}; the columns are {listed(found)}",
                hint=f"name the column that holds it: --{role} COLUMN"
                if role == "time"
                else f"name another column as the {role}, or leave the option out",
            )

    @property
    def all(self) -> tuple[str, ...]:
        return (self.topic, self.source, self.seq, self.time, self.id)


@dataclass(frozen=True, slots=True)
class Part:
    """One input: its rows, and whether it had a `seq` column (otherwise line numbers)."""

    origin: Origin
    batch: Batch
    seq_given: bool


def make_part(
    origin: Origin,
    *,
    topic: Column,
    kinds: Sequence[dict[str, Kind]],
    time: Array,
    source: Column | None,
    seq: Array | None,
    ids: Column | None,
    numbers: Array,
    attributes: dict[tuple[str, Kind], Column],
) -> Part:
    """A part with its defaults filled; `kinds` has the schema of each topic of the dictionary."""
    names = topic.dictionary
    if len(names) > TOPIC_COUNT_MAX:
        origin.refuse(
            f"there are {len(names)} topics, and {TOPIC_COUNT_MAX} are allowed",
            hint="choose as topic the column that names the type of event, not its instance",
        )
    found = schemas(Topic(name, kind) for name, kind in zip(names, kinds, strict=True))
    codes = {name: code for code, name in enumerate(found)}
    recode = np.fromiter((codes[name] for name in names), np.int32, len(names))
    if source is None:
        source = Column(Kind.STRING, np.zeros(len(time), np.int32), None, (origin.name,))
    batch = Batch(
        found,
        recode[topic.values],
        source,
        numbers if seq is None else seq,
        time,
        attributes,
        ids,
    )
    return Part(origin, batch, seq is not None)


def refuse_missing_topic(origin: Origin, column: str, row: int | None = None) -> NoReturn:
    """The one sentence for events that belong to no topic."""
    what = "there is no topic" if row is None else "the topic is null or missing"
    origin.refuse(
        f"{what}: every event has one, from the column '{column}' or given for the whole input",
        hint=f"give it as 'Topic={origin.name}', or with --topic for all inputs without the column",
        row=row,
        column="" if row is None else column,
    )


def refuse_both_topics(origin: Origin, column: str, topic: str) -> NoReturn:
    """A topic for this very input, and a column of topics in it: only one can be meant."""
    origin.refuse(
        f"the topic '{topic}' was given for this input, but it has a column '{column}' as well",
        hint="give the input without a topic, or name another column with --topic-column",
    )


def refuse_reserved(origin: Origin, names: Sequence[str]) -> None:
    """Refuse attributes that could never be read, because an event's own value has their name."""
    for name in names:
        if name in RESERVED:
            origin.refuse(
                f"the attribute '{name}' has a reserved name; every event already has its own "
                f"{', '.join(RESERVED)}",
                hint="rename the column, or drop it",
                column=name,
            )


def listed(names: Sequence[str]) -> str:
    """Names of columns for a sentence, the first twenty."""
    shown = ", ".join(f"'{name}'" for name in names[:20])
    return (shown or "none") + (f" and {len(names) - 20} more" if len(names) > 20 else "")
