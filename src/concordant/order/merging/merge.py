"""The order among the streams of one subscriber: by logical time, then by conjunction.

Where events carry the stamps of their roots, by time, then by topic, then by conjunction.

An event may be fed when no other stream can still bring one that belongs before it: the other has
an event at hand, or its frontier has passed (Wilkin 2015, figure 3.7, corrected: errata 2, 3, 5 and
8). A stream that is not live yet takes part, because what it will deliver has its place, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import groupby
from operator import itemgetter

from concordant.order.merging.messages import Ev
from concordant.order.merging.stamps import ALL, Place, place_of
from concordant.order.merging.stream import Stream


def due(streams: Collection[Stream]) -> list[tuple[Stream, tuple[Ev, ...]]]:
    """What may be fed now, in its order, in runs of one stream; it waits no longer."""
    if len(streams) == 1:
        (only,) = streams
        if only.stage != "live" or not only.waiting:
            return []
        items, only.waiting = tuple(only.waiting), []
        return [(only, items)]
    heads = (order(one, one.head) for one in streams if one.head and one.stage != "live")
    first = min(heads, default=None)  # of a stream that must not be fed yet
    found: list[tuple[Order, Stream, Ev]] = []
    for one in streams:
        count, end = 0, limit(one, streams)
        for item in one.waiting if one.stage == "live" else ():
            place = order(one, item)
            if place_of(item) > end or (first is not None and place > first):
                break
            found.append((place, one, item))
            count += 1
        del one.waiting[:count]
    found.sort(key=itemgetter(0))  # events of one stream are in their order, and stay so
    runs = groupby(found, key=lambda one: id(one[1]))
    return [(run[0][1], tuple(item for _, _, item in run)) for run in (list(r) for _, r in runs)]


def limit(one: Stream, streams: Collection[Stream]) -> Place:
    """Up to here no other stream can bring what belongs before an event of this one."""
    return min(_passed(other, one) for other in streams if other is not one)


def _passed(other: Stream, one: Stream) -> Place:
    """How far a stream has come, seen from another whose event may have the same time."""
    if one.stamped:
        return other.frontier
    return (other.frontier[0] + (other.key > one.key), ALL)


Order = tuple[int, str, tuple[str, str]]


def order(stream: Stream, item: Ev) -> Order:
    """The place of an event among those of all streams."""
    return (item.ts, item.event.topic if stream.stamped else "", stream.key)


def unmarked(streams: Collection[Stream], *, again: bool) -> Iterator[tuple[Stream, int]]:
    """Streams that others wait for, and the time that they have to pass; each once unless again."""
    heads = [(order(one, one.head), one.head, one) for one in streams if one.head is not None]
    if not heads or len(streams) == 1:
        return
    _, head, first = min(heads, key=itemgetter(0))
    ts = max(one.waiting[-1].ts for one in streams if one.waiting)
    for one in streams:
        awaited = one.head is None and _passed(one, first) < place_of(head)
        if awaited and one.stage != "attaching" and (again or ts > one.marked):
            one.marked = ts
            yield one, ts
