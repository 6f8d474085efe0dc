"""The order among the streams of one subscriber: by logical time, then by conjunction.

Where events carry the stamps of their roots, by time, then by topic, then by conjunction.

An event may be fed when no other stream can still bring one that belongs before it: the other has
an event at hand, or its frontier has passed (Wilkin 2015, figure 3.7, corrected: errata 2, 3, 5 and
8). A stream that is not live yet takes part, because what it will deliver has its place, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from operator import itemgetter

from concordant.order.merging.messages import Ev
from concordant.order.merging.stamps import ALL, Place, place_of
from concordant.order.merging.stream import Kept, Stream


def first_head(streams: Collection[Stream]) -> Stream | None:
    """The stream whose event at hand comes first."""
    if len(streams) == 1:
        (only,) = streams
        return only if only.head is not None else None
    heads = [(order(one, one.head), one) for one in streams if one.head is not None]
    return min(heads, key=itemgetter(0))[1] if heads else None


def order(stream: Stream, item: Ev) -> tuple[int, str, tuple[str, str]]:
    """The place of an event among those of all streams."""
    return (item.ts, item.event.topic if stream.stamped else "", stream.key)


def due(first: Stream, streams: Collection[Stream]) -> Kept:
    """The events of the first stream that may be fed before anything else, perhaps none."""
    run = first.run
    if len(streams) == 1:
        return run
    heads = (order(one, one.head) for one in streams if one.head is not None and one is not first)
    bound = min(heads, default=None)
    count = 0
    for item in run.items:
        if bound is not None and order(first, item) > bound or awaited(first, item, streams):
            break
        count += 1
    return run.between(0, count)


def awaited(first: Stream, item: Ev, streams: Collection[Stream]) -> list[Stream]:
    """Streams that may still bring something that belongs before an event of the first one."""
    return [
        one
        for one in streams
        if one.head is None and one is not first and one.frontier < _bound(one, first, item)
    ]


def _bound(one: Stream, first: Stream, item: Ev) -> Place:
    """What a stream has to have passed before another's event may be fed."""
    if one.stamped:
        return place_of(item)
    return (item.ts - (one.key > first.key), ALL)


def unmarked(streams: Collection[Stream], *, again: bool) -> Iterator[tuple[Stream, int]]:
    """Streams that others wait for, and the time that they have to pass; each once unless again."""
    first = first_head(streams) if len(streams) > 1 else None
    if first is None or first.head is None:
        return
    ts = max(one.last.ts for one in streams if one.head is not None)
    for one in awaited(first, first.head, streams):
        if one.stage != "attaching" and (again or ts > one.marked):
            one.marked = ts
            yield one, ts
