"""Events as columns: many events in few bytes.

Topics and sources stand once, numbers and attributes in columns of their own. A null attribute is a
missing one. Columns pay where events look alike; where each has attributes of its own, the columns
would be mostly empty, and the caller is told to send rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from concordant.model.event import Event
from concordant.model.kind import Value

_EMPTY_SHARE_MAX = 4
"""Cells of attributes per value that is there, beyond which columns do not pay."""


class EventColumns(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Events, one after the other in every column."""

    topics: list[str]
    topic: list[int]
    sources: list[str]
    source: list[int]
    seq: list[int]
    time: list[int]
    attributes: dict[str, list[Value]]
    ids: list[str] | None = None
    """Given ids, where an event has another than `source:seq`; else nothing."""

    def check(self, count: int) -> None:
        """Are these the columns of `count` events?"""
        columns: list[Sequence[Value]] = [self.topic, self.source, self.seq, self.time]
        columns += self.attributes.values()
        if self.ids is not None:
            columns.append(self.ids)
        if any(len(column) != count for column in columns):
            raise ValueError("columns of different lengths")
        for codes, texts in ((self.topic, self.topics), (self.source, self.sources)):
            if codes and not 0 <= min(codes) <= max(codes) < len(texts):
                raise ValueError("a code without a text")

    def events(self) -> list[Event]:
        """The events of columns that were checked."""
        topics = [self.topics[code] for code in self.topic]
        sources = [self.sources[code] for code in self.source]
        ids = self.ids or [""] * len(topics)
        rows = zip(*self.attributes.values(), strict=True) if self.attributes else [()] * len(ids)
        names = list(self.attributes)
        whole = all(None not in column for column in self.attributes.values())
        return [
            Event(
                topic,
                source,
                seq,
                time,
                dict(zip(names, row, strict=True))
                if whole
                else {name: v for name, v in zip(names, row, strict=True) if v is not None},
                id,
            )
            for topic, source, seq, time, row, id in zip(
                topics, sources, self.seq, self.time, rows, ids, strict=True
            )
        ]


def columns_of(events: Sequence[Event]) -> EventColumns | None:
    """Events as columns, or None where rows are shorter.

    >>> found = columns_of([Event("A", "s", 1, 5, {"x": 1}), Event("B", "s", 2, 6, {"x": 2})])
    >>> (found.topics, found.topic, found.sources, found.attributes)
    (['A', 'B'], [0, 1], ['s'], {'x': [1, 2]})
    """
    names = dict.fromkeys(name for event in events for name in event.attributes)
    values = sum(len(event.attributes) for event in events)
    if len(names) * len(events) > _EMPTY_SHARE_MAX * max(values, 1):
        return None
    topics: dict[str, int] = {}
    sources: dict[str, int] = {}
    plain = all(event.id == f"{event.source}:{event.seq}" for event in events)
    return EventColumns(
        topic=[topics.setdefault(event.topic, len(topics)) for event in events],
        topics=list(topics),
        source=[sources.setdefault(event.source, len(sources)) for event in events],
        sources=list(sources),
        seq=[event.seq for event in events],
        time=[event.time for event in events],
        attributes={name: [event.attributes.get(name) for event in events] for name in names},
        ids=None if plain else [event.id for event in events],
    )
