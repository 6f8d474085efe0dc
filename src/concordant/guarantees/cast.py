"""Who stands beside a subscriber when its guarantees are tested.

Relational properties compare subscribers under one policy. Beside a subscription stand: the same
one, written the other way round; the one that adds a topic; those that ask for one of its topics
alone; and the independent beginnings of its conjunctions, which it extends itself.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from concordant.check.agreement import common_beginnings
from concordant.check.run import slots_of_conjunction
from concordant.guarantees.scene import Subscribers
from concordant.model.expression import Slot
from concordant.model.predicate import Predicate, Wildcard, conjunction_of
from concordant.model.subscription import Conjunction, Subscription

ALONE_COUNT_MAX = 2
"""Subscribers to one topic alone; of the other topics the same can be said."""


def cast(subscription: Subscription, *others: Subscription) -> Subscribers:
    """The subscription as p1, those beside it as p2, p3 and so on."""
    base = msgspec.structs.replace(subscription, emit=None, order=None)
    turned = msgspec.structs.replace(base, conjunctions=base.conjunctions[::-1])
    beside = (base, turned, extended(base), *_alone(base), *_beginnings(base), *others)
    return tuple(
        msgspec.structs.replace(one, name=f"p{number}")
        for number, one in enumerate(beside, start=1)
    )


def extended(subscription: Subscription) -> Subscription:
    """The subscription with one topic more, to the right of all others."""
    topic = topic_after(subscription.topics)
    return _of(subscription, *(_with(c, topic) for c in subscription.conjunctions))


def topic_after(topics: tuple[str, ...]) -> str:
    """A topic that comes after these in topic order: the next letter, or a longer name."""
    last = max(topics)
    if len(last) == 1 and "A" <= last < "Z":
        return chr(ord(last) + 1)
    return "Zone" if last < "Zone" else f"{last}2"


def _with(conjunction: Conjunction, topic: str) -> Conjunction:
    return Conjunction(conjunction_of([*conjunction.predicates, Wildcard(Slot(topic, 1))]))


def _alone(subscription: Subscription) -> Iterator[Subscription]:
    for topic in subscription.topics[:ALONE_COUNT_MAX]:
        alone = Conjunction((Wildcard(Slot(topic, 1)),))
        if subscription.conjunctions != (alone,):
            yield _of(subscription, alone)


def _beginnings(subscription: Subscription) -> Iterator[Subscription]:
    for conjunction in subscription.conjunctions:
        slots = slots_of_conjunction(conjunction)
        for count in common_beginnings(conjunction, conjunction)[:-1]:
            topics = {slot.topic for slot in slots[:count]}
            inside: list[Predicate] = [
                p for p in conjunction.predicates if p.slots[0].topic in topics
            ]
            yield _of(subscription, Conjunction(tuple(inside)))
            break


def _of(subscription: Subscription, *conjunctions: Conjunction) -> Subscription:
    return msgspec.structs.replace(subscription, conjunctions=conjunctions)
