"""The order among the streams of one subscriber: by logical time, then by conjunction.

Where events carry the stamps of their roots, by time, then by topic, then by conjunction.

An event may be fed when no other stream can still bring one that belongs before it: the other has
an event at hand, or its frontier has passed (Wilkin 2015, figure 3.7, corrected: errata 2, 3, 5 and
8). A stream that is not live yet takes part, because what it will deliver has its place, too.

Events that were given their times together are neighbours in every stream, so what is due is found
and put in order by runs: a search for the end of each, and nothing for the events within.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator
from functools import partial
from heapq import heapify, heappop, heapreplace
from operator import itemgetter

from concordant.machine.instant import Instant
from concordant.order.merging.messages import Ev
from concordant.order.merging.options import MergingOptions
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
    waiting = [one for one in streams if one.waiting]
    heads = [order(one, one.waiting[0]) for one in waiting if one.stage != "live"]
    first = min(heads, default=None)  # of a stream that must not be fed yet
    ready: list[tuple[Stream, list[Ev]]] = []
    for one in waiting:
        if one.stage != "live":
            continue
        end = limit(one, streams)
        count = len(one.waiting)
        if place_of(one.waiting[-1]) > end:
            count = bisect_right(one.waiting, end, key=place_of)
        if first is not None:
            count = bisect_right(one.waiting, first, hi=count, key=partial(order, one))
        if count == len(one.waiting):
            ready.append((one, one.waiting))
            one.waiting = []
        elif count:
            ready.append((one, one.waiting[:count]))
            one.waiting = one.waiting[count:]
    if len(ready) == 1:
        return [(one, tuple(items)) for one, items in ready]
    return list(_runs(ready))


def _runs(ready: list[tuple[Stream, list[Ev]]]) -> Iterator[tuple[Stream, tuple[Ev, ...]]]:
    """Events of several streams, each in its order, as one sequence of runs."""
    heads = [(order(one, items[0]), number, 0) for number, (one, items) in enumerate(ready)]
    heapify(heads)
    while heads:
        _, number, start = heads[0]
        one, items = ready[number]
        end = len(items)
        if len(heads) > 1:  # up to the next one of another stream; no two have the same place
            other = min(heads[1:3])[0]
            end = bisect_left(items, other, start + 1, key=partial(order, one))
        yield one, tuple(items[start:end])
        if end < len(items):
            heapreplace(heads, (order(one, items[end]), number, end))
        else:
            heappop(heads)


def limit(one: Stream, streams: Collection[Stream]) -> Place:
    """Up to here no other stream can bring what belongs before an event of this one."""
    return min([_passed(other, one) for other in streams if other is not one])


def _passed(other: Stream, one: Stream) -> Place:
    """How far a stream has come, seen from another whose event may have the same time."""
    if one.stamped:
        return other.frontier
    return (other.frontier[0] + (other.key > one.key), ALL)


Order = tuple[int, str, tuple[str, str]]


def order(stream: Stream, item: Ev) -> Order:
    """The place of an event among those of all streams."""
    return (item.ts, item.event.topic if stream.stamped else "", stream.key)


def unmarked(
    streams: Collection[Stream], now: Instant, options: MergingOptions
) -> list[tuple[Stream, int]]:
    """Streams that are to be asked for a mark, and the time that they have to pass.

    Others wait for them, and nothing of them is on its way: where much comes, what is awaited comes
    too. Each is asked once, and again if nothing came of it.
    """
    if len(streams) == 1:
        return []
    silent = [one for one in streams if not one.waiting and one.inflow.silent(now, options)]
    waiting = [one for one in streams if one.waiting] if silent else []
    if not waiting:  # as mostly: nobody waits, or what is waited for is on its way
        return []
    _, head, first = min(
        [(order(one, one.waiting[0]), one.waiting[0], one) for one in waiting], key=itemgetter(0)
    )
    ts = max(one.waiting[-1].ts for one in waiting)
    return [
        (one, ts)
        for one in silent
        if one.stage != "attaching"
        and _passed(one, first) < place_of(head)
        and (ts > one.marked or now - one.marked_at > one.inflow.patience_us(options))
    ]
