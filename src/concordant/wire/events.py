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
        count = len(self.seq)
        topics, sources = _texts(self.topics, self.topic), _texts(self.sources, self.source)
        ids = self.ids or [f"{source}:{seq}" for source, seq in zip(sources, self.seq, strict=True)]
        names, columns = tuple(self.attributes), self.attributes.values()
        attributes: list[dict[str, Value]]
        if not names:
            attributes = [{} for _ in range(count)]
        elif any(None in column for column in columns):
            attributes = [
                {name: value for name, value in zip(names, row, strict=True) if value is not None}
                for row in zip(*columns, strict=True)
            ]
        else:
            attributes = [dict(zip(names, row)) for row in zip(*columns)]  # noqa: B905 - checked
        return list(map(Event, topics, sources, self.seq, self.time, attributes, ids))


def _texts(texts: list[str], codes: list[int]) -> list[str]:
    """The text of every code; most columns have one text."""
    return texts * len(codes) if len(texts) == 1 else [texts[code] for code in codes]


def columns_of(events: Sequence[Event]) -> EventColumns | None:
    """Events as columns, or None where rows are shorter.

    >>> found = columns_of([Event("A", "s", 1, 5, {"x": 1}), Event("B", "s", 2, 6, {"x": 2})])
    >>> (found.topics, found.topic, found.sources, found.attributes)
    (['A', 'B'], [0, 1], ['s'], {'x': [1, 2]})
    """
    given = [event.attributes for event in events]
    first = given[0].keys()
    attributes: dict[str, list[Value]]
    if all(one.keys() == first for one in given):
        attributes = {name: [one[name] for one in given] for name in first}
    else:
        names = dict.fromkeys(name for one in given for name in one)
        if len(names) * len(events) > _EMPTY_SHARE_MAX * max(sum(map(len, given)), 1):
            return None
        attributes = {name: [one.get(name) for one in given] for name in names}
    topics, topic = _codes([event.topic for event in events])
    sources, source = _codes([event.source for event in events])
    seq = [event.seq for event in events]
    ids = [event.id for event in events]
    plain = ids == [f"{event.source}:{n}" for event, n in zip(events, seq, strict=True)]
    time = [event.time for event in events]
    return EventColumns(
        topics, topic, sources, source, seq, time, attributes, None if plain else ids
    )


def _codes(texts: list[str]) -> tuple[list[str], list[int]]:
    """Each text once, and which of them each is."""
    codes = {text: code for code, text in enumerate(dict.fromkeys(texts))}
    if len(codes) == 1:
        return texts[:1], [0] * len(texts)
    return list(codes), [codes[text] for text in texts]
