"""Which subscriptions may be matched apart: sets that share a shuffle, and their keys.

Pure: subscriptions in, sets out. Everything that could make two events meet (a queue, a cap over a
whole subscription, a derived topic) keeps them in one bucket; everything else is free to be apart.
It knows nothing of Spark, columns or rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concordant.model.emission import emitters
from concordant.model.expression import Attribute, Slot
from concordant.model.predicate import Comparison
from concordant.model.subscription import QUEUED_COUNT_MAX, Subscription


@dataclass(frozen=True)
class SubscriptionSet:
    """Subscriptions that see the same buckets of events."""

    subscriptions: tuple[Subscription, ...]
    key: tuple[str, ...]
    """Attributes that say which bucket an event goes to; none: all events go to one bucket."""

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of the input that some subscription reads, sorted."""
        derived = emitters(self.subscriptions)
        read = {topic for one in self.subscriptions for topic in one.topics}
        return tuple(sorted(read - derived.keys()))

    def reads_neighbours(self, topic: str) -> bool:
        """Does a subscription count every event of the topic, wanted or not?"""
        return any(
            one.policy.contiguous and any(c.instances.get(topic, 0) > 1 for c in one.conjunctions)
            for one in self.subscriptions
        )

    def alternatives(self, topic: str) -> tuple[tuple[Comparison, ...], ...] | None:
        """Predicates, all of which hold in one of these cases for every event that can enter a
        queue; None if that may be any event."""
        if self.reads_neighbours(topic):
            return None  # an event that no slot wants is still a neighbour of others
        found: dict[tuple[Comparison, ...], None] = {}
        for one in self.subscriptions:
            for conjunction in one.conjunctions:
                for instance in range(1, conjunction.instances.get(topic, 0) + 1):
                    tests = tuple(
                        predicate
                        for predicate in conjunction.predicates
                        if isinstance(predicate, Comparison)
                        and predicate.slots == (Slot(topic, instance),)
                    )
                    if not tests:
                        return None
                    found[tests] = None
        return tuple(found)


def sets_of(subscriptions: Sequence[Subscription]) -> tuple[SubscriptionSet, ...]:
    """All subscriptions in as few sets as their keys allow.

    Sets with a key are told apart by it. Subscriptions without one are together as far as they
    read the same topics, so that no event is sent twice on their account.

    >>> from concordant.language import parse
    >>> sets_of(parse("A then B partition by k"))[0].key
    ('k',)
    """
    by_key: dict[tuple[str, ...], list[Subscription]] = {}
    whole: list[list[Subscription]] = []
    for group in _fed(subscriptions):
        key = _key(group)
        if key:
            by_key.setdefault(key, []).extend(group)
        else:
            whole.append(group)
    keyed = [SubscriptionSet(tuple(found), key) for key, found in by_key.items()]
    return (*keyed, *(SubscriptionSet(tuple(found), ()) for found in _sharing_topics(whole)))


def _fed(subscriptions: Sequence[Subscription]) -> list[list[Subscription]]:
    """Subscriptions joined by derived topics, in the order given."""
    derived = emitters(subscriptions)
    links = [
        {index} | {i for topic in one.topics for i in derived.get(topic, ())}
        for index, one in enumerate(subscriptions)
    ]
    # Those that emit the same topic belong together too: one schema, one stream of derived events.
    links += [set(found) for found in derived.values()]
    return [[subscriptions[i] for i in group] for group in _joined(links)]


def _sharing_topics(groups: Sequence[list[Subscription]]) -> list[list[Subscription]]:
    reading: dict[str, set[int]] = {}
    for index, group in enumerate(groups):
        for topic in SubscriptionSet(tuple(group), ()).topics:
            reading.setdefault(topic, set()).add(index)
    links = [{index} for index in range(len(groups))] + list(reading.values())
    return [[one for i in found for one in groups[i]] for found in _joined(links)]


def _joined(links: Sequence[set[int]]) -> list[list[int]]:
    """Numbers that are linked, directly or through others, each group sorted."""
    groups: list[set[int]] = []
    for link in links:
        touching = [group for group in groups if group & link]
        groups = [group for group in groups if not group & link]
        groups.append(link.union(*touching))
    return sorted(sorted(group) for group in groups)


def _key(group: Sequence[Subscription]) -> tuple[str, ...]:
    """The key by which a group may be spread; nothing if its events must stay together."""
    keys = {tuple(sorted(one.partition_by)) for one in group}
    if len(keys) > 1 or any(one.queued_count_max != QUEUED_COUNT_MAX for one in group):
        return ()
    (key,) = keys
    if len(group) > 1 and not all(_emits(one, key) for one in group):
        return ()
    return key


def _emits(subscription: Subscription, key: tuple[str, ...]) -> bool:
    """Does what it emits, if anything, stay with the key of its relation?"""
    if subscription.emit is None:
        return True
    fields = {field.name: field.value for field in subscription.emit.fields}
    return all(
        isinstance(value := fields.get(name), Attribute) and value.name == name for name in key
    )
