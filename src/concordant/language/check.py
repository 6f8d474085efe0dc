"""Subscriptions against schemas: type errors that can be seen beforehand are refused here.

`check` knows topics and their attributes' kinds, also those of topics that subscriptions derive by
`emit`. It does not know text: its errors name the subscription and print the predicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from concordant.errors import UsageError
from concordant.language.kinds import (
    compared,
    merged,
    schema_of,
    typed,
    unknown_attribute,
)
from concordant.language.normal import distinct
from concordant.model.emission import depths
from concordant.model.kind import RESERVED, Kind
from concordant.model.predicate import Comparison, Predicate, conjunction_of
from concordant.model.subscription import Conjunction, Emit, Field, Subscription
from concordant.model.topic import Topic


def check(
    subscriptions: Iterable[Subscription], schemas: Mapping[str, Topic]
) -> tuple[Subscription, ...]:
    """The same subscriptions with strings read as times where they meet a time.

    Raises `UsageError` for unknown topics and attributes, values that cannot be compared or
    calculated with, and derived topics that clash or feed themselves.
    """
    return checked(tuple(subscriptions), schemas)[0]


def derived_topics(
    subscriptions: Iterable[Subscription], schemas: Mapping[str, Topic]
) -> dict[str, Topic]:
    """The schemas of the topics that the subscriptions emit, by name."""
    return checked(tuple(subscriptions), schemas)[1]


def checked(
    subscriptions: Sequence[Subscription], schemas: Mapping[str, Topic]
) -> tuple[tuple[Subscription, ...], dict[str, Topic]]:
    """What `check` and `derived_topics` give, for who needs both."""
    _check_names(subscriptions, schemas)
    derived: dict[str, Topic] = {}
    emitter: dict[str, str] = {}
    result = list(subscriptions)
    by_depth = sorted(enumerate(depths(subscriptions)), key=lambda pair: pair[1])
    for index, _ in by_depth:  # so every derived topic is known before it is read
        subscription = subscriptions[index]
        found, topic = _checked_one(subscription, {**schemas, **derived})
        result[index] = found
        if topic is not None:
            earlier = derived.get(topic.name)
            if earlier is not None:
                topic = _same(earlier, topic, emitter[topic.name], subscription.name)
            derived[topic.name] = topic
            emitter.setdefault(topic.name, subscription.name)
    return tuple(result), derived


def _check_names(subscriptions: Sequence[Subscription], schemas: Mapping[str, Topic]) -> None:
    seen: set[str] = set()
    for subscription in subscriptions:
        if subscription.name in seen:
            raise UsageError(
                f"two subscriptions are called '{subscription.name}'",
                hint="give each a name of its own; relations are known by it",
            )
        seen.add(subscription.name)
        if subscription.emit is not None and subscription.emit.topic in schemas:
            raise UsageError(
                f"subscription '{subscription.name}' emits '{subscription.emit.topic}', "
                "which is a topic of the input",
                hint="choose another name for the derived topic",
            )


def _checked_one(
    subscription: Subscription, schemas: Mapping[str, Topic]
) -> tuple[Subscription, Topic | None]:
    where = f"subscription '{subscription.name}'"
    for name in subscription.topics:
        try:
            schema_of(name, schemas)
        except UsageError as error:
            raise _within(where, error) from None
    found = distinct(
        Conjunction(conjunction_of(_predicate(p, schemas, where) for p in conjunction.predicates))
        for conjunction in subscription.conjunctions
    )
    try:
        _check_partition(subscription, schemas)
    except UsageError as error:
        raise _within(where, error) from None
    emit, topic = None, None
    if subscription.emit is not None:
        emit, topic = _emitted(subscription.emit, schemas, where)
    return msgspec.structs.replace(subscription, conjunctions=found, emit=emit), topic


def _predicate(predicate: Predicate, schemas: Mapping[str, Topic], where: str) -> Predicate:
    if not isinstance(predicate, Comparison):
        return predicate
    try:
        return compared(predicate, schemas)
    except UsageError as error:
        raise _within(f"{where}, in '{predicate}'", error) from None


def _check_partition(subscription: Subscription, schemas: Mapping[str, Topic]) -> None:
    for name in subscription.partition_by:
        first, kind = "", Kind.NULL
        for topic in (schemas[topic] for topic in subscription.topics):
            own = topic.kind(name)
            if own is None:
                error = unknown_attribute(topic, name)
                raise UsageError(
                    f"'partition by {name}' needs the attribute in every topic, and "
                    + error.message,
                    hint=error.hint,
                )
            both = merged(kind, own)
            if both is None:
                raise UsageError(
                    f"'partition by {name}' needs one kind of value, and '{name}' is {kind} in "
                    f"'{first}' but {own} in '{topic.name}'",
                    hint="publish the attribute with the same kind in both topics",
                )
            if kind is Kind.NULL and both is not Kind.NULL:
                first = topic.name
            kind = both


def _emitted(emit: Emit, schemas: Mapping[str, Topic], where: str) -> tuple[Emit, Topic]:
    fields: list[Field] = []
    kinds: dict[str, Kind] = {}
    for field in emit.fields:
        try:
            value, kind = typed(field.value, schemas)
            _check_field(field, kind, kinds)
        except UsageError as error:
            raise _within(f"{where}, in 'emit … {field.name} = {field.value}'", error) from None
        fields.append(Field(field.name, value))
        kinds[field.name] = kind
    return Emit(emit.topic, tuple(fields)), Topic(emit.topic, kinds)


def _check_field(field: Field, kind: Kind, earlier: Mapping[str, Kind]) -> None:
    if kind is Kind.POSITION:
        raise UsageError(
            "a position cannot be emitted: it has a meaning only inside one order",
            hint="emit the time, or nothing: a derived event has a position of its own",
        )
    if field.name in earlier or field.name in RESERVED:
        raise UsageError(
            f"the attribute '{field.name}' is given twice or reserved", hint="choose another name"
        )


def _same(earlier: Topic, later: Topic, first: str, second: str) -> Topic:
    """One schema for a topic that two subscriptions emit."""
    kinds: dict[str, Kind] = {}
    for name in (*earlier.attributes, *later.attributes):
        one, other = earlier.attributes.get(name), later.attributes.get(name)
        kind = merged(one, other) if one and other else None
        if kind is None:
            raise UsageError(
                f"subscriptions '{first}' and '{second}' both emit '{later.name}', but the "
                f"attribute '{name}' is {one or 'missing'} in the first and "
                f"{other or 'missing'} in the second",
                hint="emit the same attributes of the same kinds, or two topics",
            )
        kinds[name] = kind
    return Topic(later.name, kinds)


def _within(where: str, error: UsageError) -> UsageError:
    return UsageError(f"{where}: {error.message}", hint=error.hint)
