"""Filters: which events of which topics a consumer of a merger wants.

A filter has, per topic, alternatives; an alternative is all unary predicates of one instance of the
topic, and an instance without any gives the empty alternative, which everything passes. A wider
filter is always allowed, so what is costly or numbered is not filtered at all. Filters say nothing
about binary predicates: those are the subscriber's.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from concordant.model.event import Event
from concordant.model.expression import Arithmetic, Attribute, Expression, Slot
from concordant.model.kind import Value
from concordant.model.predicate import Comparison, holds
from concordant.model.subscription import Subscription

Alternative = tuple[Comparison, ...]

ALTERNATIVE_COUNT_MAX = 16
"""More alternatives of one topic than this are not worth their evaluation: everything passes."""

ALL: tuple[Alternative, ...] = ((),)


class Filter(msgspec.Struct, frozen=True):
    """Alternatives by topic; a topic that is not there is not wanted."""

    topics: dict[str, tuple[Alternative, ...]] = {}

    def passes(self, event: Event) -> bool:
        """Does some alternative hold for the event?"""
        alternatives = self.topics.get(event.topic)
        if alternatives is None:
            return False
        if not alternatives[0]:  # the empty alternative stands alone
            return True

        def read(_slot: Slot, name: str) -> Value:
            return event.read(name)

        return any(all(holds(one, read) for one in each) for each in alternatives)

    def whole(self, topics: tuple[str, ...]) -> bool:
        """Does everything of these topics pass?"""
        return all(self.topics.get(topic) == ALL for topic in topics)

    def covers(self, other: Filter) -> bool:
        """Does everything that passes the other pass here? Judged by form: sound, not complete."""
        return all(
            topic in self.topics
            and (self.topics[topic] == ALL or set(wanted) <= set(self.topics[topic]))
            for topic, wanted in other.topics.items()
        )

    def restricted(self, topics: Iterable[str]) -> Filter:
        """The same for these topics only."""
        return Filter({one: self.topics[one] for one in topics if one in self.topics})


def union(filters: Iterable[Filter]) -> Filter:
    """What passes one of them passes."""
    found: dict[str, dict[Alternative, bool]] = {}
    for each in filters:
        for topic, alternatives in each.topics.items():
            found.setdefault(topic, {}).update(dict.fromkeys(alternatives, True))
    return Filter({topic: _alternatives(found[topic]) for topic in sorted(found)})


def _alternatives(found: Iterable[Alternative]) -> tuple[Alternative, ...]:
    every = set(found)
    if () in every or len(every) > ALTERNATIVE_COUNT_MAX:
        return ALL
    return tuple(sorted(every, key=lambda one: [str(predicate) for predicate in one]))


def filter_of(subscription: Subscription) -> Filter:
    """The filter of a subscription with one conjunction.

    Nothing is filtered where neighbours or positions are counted: a number is given to every event
    of a topic, so a filter before the count would make false neighbours.
    """
    (conjunction,) = subscription.conjunctions
    unary: dict[Slot, list[Comparison]] = {
        Slot(topic, instance): []
        for topic, count in conjunction.instances.items()
        for instance in range(1, count + 1)
    }
    for predicate in conjunction.predicates:
        if isinstance(predicate, Comparison) and len(predicate.slots) == 1:
            unary[predicate.slots[0]].append(_first_instance(predicate))
    if is_counted(subscription):
        return Filter(dict.fromkeys(conjunction.instances, ALL))
    return union(
        Filter({slot.topic: (tuple(sorted(wanted, key=str)),)}) for slot, wanted in unary.items()
    )


def is_counted(subscription: Subscription) -> bool:
    """Do neighbours or positions matter?"""
    return subscription.policy.contiguous or any(
        isinstance(one, Comparison) and _reads_position(one.left, one.right)
        for conjunction in subscription.conjunctions
        for one in conjunction.predicates
    )


def _reads_position(*sides: Expression) -> bool:
    for side in sides:
        if isinstance(side, Attribute) and side.name == "position":
            return True
        if isinstance(side, Arithmetic) and _reads_position(side.left, side.right):
            return True
    return False


def _first_instance(predicate: Comparison) -> Comparison:
    """The same question of whichever event stands in the slot."""
    return Comparison(predicate.op, _moved(predicate.left), _moved(predicate.right))


def _moved(side: Expression) -> Expression:
    if isinstance(side, Attribute):
        return Attribute(Slot(side.slot.topic, 1), side.name)
    if isinstance(side, Arithmetic):
        return Arithmetic(side.op, _moved(side.left), _moved(side.right))
    return side
