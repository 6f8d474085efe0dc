"""A history made ready for the order levels: who published, held and delivered what, as numbers.

Items are what is delivered: an event, or a relation with its identity. Every process has its steps
in order; every delivery knows which topics its process held at that moment. The index knows no
property.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from concordant.model.history import Row
from concordant.model.kind import Value

Item = str | tuple[str, int, tuple[Value, ...], tuple[str, ...]]
"""An event's id, or subscription, conjunction, key and events of a relation."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A published event: the `number`th of its process, and the `topic_number`th of its topic."""

    row: Row
    number: int
    topic_number: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """One delivery of an item."""

    item: Item
    row: Row
    held: frozenset[str] | None
    """The topics that the process had subscribed at that moment; None if nothing was said."""
    doubted: bool
    """The process had given up waiting for somebody before."""
    spell: int = 0
    """How often the process had unsubscribed something before."""


@dataclass
class Process:
    """What one process did."""

    name: str
    steps: list[Publication | Delivered] = field(default_factory=list)
    """Publications and deliveries, in the order in which the process did them."""
    deliveries: list[Delivered] = field(default_factory=list)
    held: dict[str, Row] = field(default_factory=dict)
    """Topics held at the end, with the row since which they are held without a break."""
    ever_subscribed: bool = False
    up: bool = True
    doubted: bool = False
    spell: int = 0
    gapped: bool = False
    """It was told that something is missing for good, by a delivery without events."""
    correlates: bool = False
    """It delivers relations, so which events it is owed is not for a level to say."""

    @property
    def in_order(self) -> list[Delivered]:
        """Deliveries that claim to be in order, the first of each item."""
        found: dict[Item, Delivered] = {}
        for one in self.deliveries:
            if one.row.in_order:
                found.setdefault(one.item, one)
        return list(found.values())


@dataclass
class Seen:
    """The index over the rows of one run."""

    processes: dict[str, Process] = field(default_factory=dict)
    published: dict[str, Publication] = field(default_factory=dict)
    ended: bool = False
    """The run came to its end, so that whatever is owed must be there."""

    @property
    def subscribers(self) -> list[Process]:
        return [one for one in self.processes.values() if one.deliveries or one.ever_subscribed]


def seen(rows: Iterable[Row]) -> Seen:
    """Index the rows of one run."""
    index = Seen()
    numbers: dict[str, int] = {}
    topic_numbers: dict[tuple[str, tuple[str, ...]], int] = {}
    held: dict[str, frozenset[str]] = {}
    for row in rows:
        if row.step == "end":
            index.ended = True
            continue
        process = index.processes.get(row.process)
        if process is None:
            process = index.processes[row.process] = Process(row.process)
        if row.step == "deliver" and not row.events:
            process.gapped = True
        elif row.step == "deliver":
            item: Item = row.events[0]
            if row.conjunction:
                process.correlates = True
                item = (row.subscription, row.conjunction, row.key, row.events)
            delivered = Delivered(item, row, held.get(row.process), process.doubted, process.spell)
            process.steps.append(delivered)
            process.deliveries.append(delivered)
        elif row.step == "publish":
            number = numbers[row.process] = numbers.get(row.process, 0) + 1
            key = (row.process, row.topics)
            topic_number = topic_numbers[key] = topic_numbers.get(key, 0) + 1
            publication = Publication(row, number, topic_number)
            process.steps.append(publication)
            index.published.setdefault(row.events[0], publication)
        elif row.step == "subscribe":
            process.ever_subscribed = True
            process.correlates = process.correlates or bool(row.text)
            for topic in row.topics:
                process.held.setdefault(topic, row)
            held[row.process] = frozenset(process.held)
        elif row.step == "unsubscribe":
            process.spell += 1
            for topic in row.topics:
                process.held.pop(topic, None)
            held[row.process] = frozenset(process.held)
        elif row.step == "suspect":
            process.doubted = True
        elif row.step in ("crash", "restart"):
            process.up = row.step == "restart"
    return index
