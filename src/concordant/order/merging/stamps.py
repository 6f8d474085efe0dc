"""Places in time: how far a stream has come, and which event is the next by its stamp.

In the mode `stamped` a root's logical time is an event's stamp for good: mergers and subscribers
choose nothing, but take what comes next by (time, topic). A frontier says how far a stream has
come: what follows lies beyond it. Behind an event of a merger that is the event's own place,
because another topic's event may have the same time; behind everything else, and in the stream of a
root, it is the whole of a time.
"""

from __future__ import annotations

from concordant.order.merging.messages import Ev, Item

Place = tuple[int, str]
"""Time and topic; a time without a topic is passed as a whole with `ALL`."""

ALL = "\U0010ffff"
"""Behind every topic."""

NOWHERE: Place = (0, "")

TICKS = 1 << 10
"""Logical times in a microsecond of a leader's clock: events that were given their times together
stay together where streams are merged."""


def place_of(item: Ev) -> Place:
    """Where an event belongs."""
    return (item.ts, item.event.topic)


def beyond(item: Item, *, mixed: bool) -> Place:
    """What follows an item in its stream lies beyond this place. A mixed stream has stamps of
    several roots; in others no two events share a time."""
    return place_of(item) if mixed and isinstance(item, Ev) else (item.ts, ALL)


def passed(frontier: Place) -> int:
    """The last time that is passed as a whole."""
    ts, topic = frontier
    return ts if topic == ALL else ts - 1
