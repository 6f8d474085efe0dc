"""From subscriptions to a plan: what the matching code needs, worked out once.

A plan is data: slots in topic order, predicates sorted by the slots they name, the parts of a
`staged` conjunction, who reads which topic. It holds no events and never changes; the same plan
drives the clear engine, the kernel and `explain`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from concordant.errors import UsageError
from concordant.model.emission import depths, emitters
from concordant.model.expression import Slot
from concordant.model.predicate import Comparison
from concordant.model.subscription import Conjunction, Subscription
from concordant.model.topic import Schemas, TopicOrder


@dataclass(frozen=True)
class Binary:
    """A predicate on two slots, given by their indexes in the signature (left < right)."""

    left: int
    right: int
    predicate: Comparison


@dataclass(frozen=True)
class Part:
    """Slots that are matched together: a whole conjunction, or one part of a staged one."""

    slots: tuple[Slot, ...]
    unary: tuple[tuple[Comparison, ...], ...]
    """Per slot, the predicates that name only it."""
    binary: tuple[tuple[Binary, ...], ...]
    """Per slot, the predicates that name it and another one."""

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """The topics of the slots, in topic order."""
        return tuple(dict.fromkeys(slot.topic for slot in self.slots))

    @cached_property
    def slots_of_topic(self) -> dict[str, range]:
        """The indexes of each topic's slots, instance 1 first."""
        found: dict[str, range] = {}
        for topic in self.topics:
            indexes = [i for i, slot in enumerate(self.slots) if slot.topic == topic]
            found[topic] = range(indexes[0], indexes[-1] + 1)
        return found


@dataclass(frozen=True)
class ConjunctionPlan:
    """One conjunction of one subscription."""

    subscription: str
    number: int
    """Its number in the text, from 1."""
    whole: Part
    parts: tuple[Part, ...]
    """What is matched: the whole, or its connected parts if the subscription is staged."""
    part_of_topic: dict[str, int]


@dataclass(frozen=True)
class SubscriptionPlan:
    """One subscription, its conjunctions in canonical order."""

    subscription: Subscription
    depth: int
    conjunctions: tuple[ConjunctionPlan, ...]
    fingerprint: str
    """Changes whenever a state saved under one text would be wrong under another."""

    @property
    def name(self) -> str:
        return self.subscription.name

    @cached_property
    def by_number(self) -> dict[int, ConjunctionPlan]:
        """The conjunctions by their number in the text."""
        return {conjunction.number: conjunction for conjunction in self.conjunctions}


@dataclass(frozen=True)
class Plan:
    """Subscriptions in processing order (depth, then name), over topics with known schemas."""

    subscriptions: tuple[SubscriptionPlan, ...]
    schemas: Schemas
    topic_order: TopicOrder
    topic_depth: dict[str, int] = field(default_factory=dict)
    """Depth of each derived topic: one more than that of its deepest emitter."""

    @cached_property
    def by_name(self) -> dict[str, SubscriptionPlan]:
        return {subscription.name: subscription for subscription in self.subscriptions}

    @cached_property
    def readers(self) -> dict[str, tuple[int, ...]]:
        """Which subscriptions read a topic, by topic name."""
        found: dict[str, list[int]] = {}
        for index, subscription in enumerate(self.subscriptions):
            for topic in subscription.subscription.topics:
                found.setdefault(topic, []).append(index)
        return {topic: tuple(readers) for topic, readers in found.items()}


def compile_plan(
    subscriptions: Sequence[Subscription],
    schemas: Schemas,
    *,
    topic_order: TopicOrder = TopicOrder(),  # noqa: B008 - a frozen value
) -> Plan:
    """The plan of checked subscriptions (see `language.check`)."""
    if not subscriptions:
        raise UsageError("there is no subscription", hint="give at least one")
    names: set[str] = set()
    for subscription in subscriptions:
        if subscription.name in names:
            raise UsageError(
                f"two subscriptions are called {subscription.name!r}", hint="rename one of them"
            )
        names.add(subscription.name)
    depth = depths(subscriptions)
    plans = [
        SubscriptionPlan(
            subscription,
            depth[index],
            tuple(
                _conjunction(i + 1, subscription.conjunctions[i], subscription, topic_order)
                for i in subscription.canonical_order
            ),
            _fingerprint(subscription, schemas, topic_order),
        )
        for index, subscription in enumerate(subscriptions)
    ]
    topic_depth = {
        topic: 1 + max(depth[index] for index in found)
        for topic, found in emitters(subscriptions).items()
    }
    plans.sort(key=lambda plan: (plan.depth, plan.name))
    return Plan(tuple(plans), schemas, topic_order, topic_depth)


def _conjunction(
    number: int, conjunction: Conjunction, subscription: Subscription, topic_order: TopicOrder
) -> ConjunctionPlan:
    instances = conjunction.instances
    topics = sorted(instances, key=topic_order.key)
    whole = _part(conjunction, topics)
    groups = _connected(conjunction, topics) if subscription.policy.staged else [topics]
    parts = tuple(_part(conjunction, group) for group in groups)
    part_of_topic = {topic: i for i, group in enumerate(groups) for topic in group}
    return ConjunctionPlan(subscription.name, number, whole, parts, part_of_topic)


def _part(conjunction: Conjunction, topics: Sequence[str]) -> Part:
    instances = conjunction.instances
    slots = tuple(Slot(topic, i + 1) for topic in topics for i in range(instances[topic]))
    index = {slot: i for i, slot in enumerate(slots)}
    unary: list[list[Comparison]] = [[] for _ in slots]
    binary: list[list[Binary]] = [[] for _ in slots]
    for predicate in conjunction.predicates:
        if not isinstance(predicate, Comparison) or predicate.slots[0] not in index:
            continue
        named = sorted(index[slot] for slot in predicate.slots)
        if len(named) == 1:
            unary[named[0]].append(predicate)
        else:
            pair = Binary(named[0], named[1], predicate)
            binary[pair.left].append(pair)
            binary[pair.right].append(pair)
    return Part(slots, tuple(map(tuple, unary)), tuple(map(tuple, binary)))


def _connected(conjunction: Conjunction, topics: Sequence[str]) -> list[list[str]]:
    """Topics linked by binary predicates, as groups in topic order."""
    group = {topic: topic for topic in topics}
    for predicate in conjunction.predicates:
        linked = {group[slot.topic] for slot in predicate.slots}
        for topic in topics:
            if group[topic] in linked:
                group[topic] = min(linked)
    return [
        [topic for topic in topics if group[topic] == name]
        for name in dict.fromkeys(group[topic] for topic in topics)
    ]


def _fingerprint(subscription: Subscription, schemas: Schemas, topic_order: TopicOrder) -> str:
    digest = hashlib.blake2b(digest_size=16)
    digest.update(str(subscription).encode())
    for topic in sorted(subscription.topics, key=topic_order.key):
        kinds = sorted(schemas[topic].attributes.items()) if topic in schemas else []
        digest.update(f"\n{topic}:{kinds}".encode())
    return digest.hexdigest()
