"""In which orders processes may get events under an order level.

The weaker the level, the fewer pairs of events have to keep their order. A level is a rule about
pairs; an arrival is a random order that respects it. Publishers that subscribe to nothing know of
no event, so theirs are the concurrent ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from concordant.guarantees.scene import Subscribers
from concordant.model.event import Event

Rule = Callable[[Event, Event], bool]
"""Must the first of two events, in the order of publication, arrive first?"""


def arrivals(
    level: str, subscribers: Subscribers, events: Sequence[Event], rng: Random
) -> dict[str, tuple[int, ...]]:
    """An order of arrival for each process, as indexes of the events."""
    rule = _rule(level, subscribers)
    return {one.name: _shuffled(events, rule, rng) for one in subscribers}


def _rule(level: str, subscribers: Subscribers) -> Rule:
    processes = {one.name for one in subscribers}
    groups = _groups(subscribers)
    rules: dict[str, Rule] = {
        "none": lambda one, other: False,
        "fifo": lambda one, other: (one.source, one.topic) == (other.source, other.topic),
        # A process may have got everything that was published before its own events.
        "causal": lambda one, other: one.source == other.source or other.source in processes,
        # One merger orders the topics of a conjunction, the same for all who share them.
        "agreed": lambda one, other: groups[one.topic] == groups[other.topic],
    }
    return rules[level]


def _groups(subscribers: Subscribers) -> dict[str, str]:
    """Topics that some conjunction joins, by a common name."""
    group = {topic: topic for one in subscribers for topic in one.topics}
    for conjunction in (c for one in subscribers for c in one.conjunctions):
        joined = {group[topic] for topic in conjunction.instances}
        group = {t: min(joined) if name in joined else name for t, name in group.items()}
    return group


def _shuffled(events: Sequence[Event], rule: Rule, rng: Random) -> tuple[int, ...]:
    waiting = [*range(len(events))]
    order: list[int] = []
    while waiting:
        ready = [
            i for i in waiting if not any(j < i and rule(events[j], events[i]) for j in waiting)
        ]
        chosen = rng.choice(ready)
        waiting.remove(chosen)
        order.append(chosen)
    return tuple(order)
