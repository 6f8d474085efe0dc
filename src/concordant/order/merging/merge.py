"""The order among the streams of one subscriber: by logical time, then by conjunction.

Where events carry the stamps of their roots, by time, then by topic, then by conjunction.

An event may be fed when no other stream can still bring one that belongs before it: the other has
an event at hand, or its frontier has passed (Wilkin 2015, figure 3.7, corrected: errata 2, 3, 5 and
8). A stream that is not live yet takes part, because what it will deliver has its place, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from concordant.order.merging.messages import Ev
from concordant.order.merging.stamps import ALL, Place, place_of
from concordant.order.merging.stream import Stream


def first_head(streams: Collection[Stream]) -> Stream | None:
    """The stream whose event at hand comes first."""
    if len(streams) == 1:
        (only,) = streams
        return only if only.head is not None else None
    heads = [one for one in streams if one.head is not None]
    return min(heads, key=_order) if heads else None


def _order(stream: Stream) -> tuple[int, str, tuple[str, str]]:
    head = stream.head
    assert head is not None
    return (head.item.ts, head.item.event.topic if stream.stamped else "", stream.key)


def awaited(first: Stream, streams: Collection[Stream]) -> list[Stream]:
    """Streams that may still bring something that belongs before the event at hand."""
    if len(streams) == 1:
        return []
    head = first.head
    assert head is not None
    return [
        one
        for one in streams
        if one.head is None and one is not first and one.frontier < _bound(one, first, head.item)
    ]


def _bound(one: Stream, first: Stream, item: Ev) -> Place:
    """What a stream has to have passed before another's event may be fed."""
    if one.stamped:
        return place_of(item)
    return (item.ts - (one.key > first.key), ALL)


def unmarked(streams: Collection[Stream], *, again: bool) -> Iterator[tuple[Stream, int]]:
    """Streams that others wait for, and the time that they have to pass; each once unless again."""
    first = first_head(streams)
    if first is None:
        return
    ts = max(one.waiting[-1].item.ts for one in streams if one.head is not None)
    for one in awaited(first, streams):
        if one.stage != "attaching" and (again or ts > one.marked):
            one.marked = ts
            yield one, ts
