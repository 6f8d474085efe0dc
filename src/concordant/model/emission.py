"""Which subscription feeds which, through derived topics.

A subscription that emits a topic feeds those that read it. Depth 0 reads only base topics; a cycle
is refused, because its relations would never end.
"""

from __future__ import annotations

from collections.abc import Sequence

from concordant.errors import UsageError
from concordant.model.event import Event
from concordant.model.expression import Slot, evaluate
from concordant.model.kind import Value
from concordant.model.relation import Relation
from concordant.model.subscription import Emit, Subscription


def emitters(subscriptions: Sequence[Subscription]) -> dict[str, tuple[int, ...]]:
    """The indexes of the subscriptions that emit each derived topic, by topic name."""
    found: dict[str, tuple[int, ...]] = {}
    for index, subscription in enumerate(subscriptions):
        if subscription.emit is not None:
            topic = subscription.emit.topic
            found[topic] = (*found.get(topic, ()), index)
    return dict(sorted(found.items()))


def depths(subscriptions: Sequence[Subscription]) -> tuple[int, ...]:
    """How many steps of emission stand before each subscription; a cycle is refused."""
    derived = emitters(subscriptions)
    feeding = [
        sorted({i for topic in s.topics for i in derived.get(topic, ())}) for s in subscriptions
    ]
    depth = [0] * len(subscriptions)
    for _ in range(len(subscriptions)):
        new = [1 + max((depth[i] for i in feeds), default=-1) for feeds in feeding]
        if new == depth:
            return tuple(depth)
        depth = new
    raise UsageError(
        "the subscriptions feed each other in a circle: " + _circle(subscriptions, feeding),
        hint="a derived topic may not be used, directly or through others, by what emits it",
    )


def _circle(subscriptions: Sequence[Subscription], feeding: list[list[int]]) -> str:
    reached = {i: {*feeds} for i, feeds in enumerate(feeding)}
    for _ in subscriptions:
        for before in reached.values():
            before |= {j for i in sorted(before) for j in feeding[i]}
    return ", ".join(subscriptions[i].name for i, before in reached.items() if i in before)


def derived_event(emit: Emit, slots: Sequence[Slot], relation: Relation, time: int) -> Event:
    """The event that a relation becomes, at the time of its completing event.

    Its identity is intrinsic: the source is the subscription (and partition value), the seq is the
    relation's position. A field without a value is left out, which reads as null.
    """
    event_of = dict(zip(slots, relation.events, strict=True))
    attributes: dict[str, Value] = {}
    for field in emit.fields:
        value = evaluate(field.value, lambda slot, name: event_of[slot].read(name))
        if value is not None and value == value:  # NaN is no value either
            attributes[field.name] = value
    source = relation.subscription + (f"/{relation.key_text}" if relation.key else "")
    return Event(emit.topic, source, relation.position, time, attributes)
