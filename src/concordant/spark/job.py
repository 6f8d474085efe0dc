"""What a task needs to know, as plain values that can be sent to a worker.

A job is made once, by the driver, from checked subscriptions and the schemas of the input. It says
which columns travel, which subscriptions are matched together and what is shown of a relation's
events. It holds no rows and knows no Spark.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from concordant.correlate.plan import Plan, compile_plan
from concordant.errors import UsageError
from concordant.language.kinds import unknown_attribute
from concordant.model.emission import emitters
from concordant.model.expression import Slot, attributes_of
from concordant.model.kind import RESERVED, Kind
from concordant.model.predicate import Comparison
from concordant.model.subscription import Subscription
from concordant.model.topic import Topic, schemas
from concordant.spark.layout import SubscriptionSet, sets_of

Wanted = tuple[str, Kind]
"""A column: an attribute's name and kind, as in a batch."""

OWN_FIELDS = ("id", "topic", "source", "seq", "time")
"""What is shown of every event of a relation, beside its attributes."""

HEAD = ("subscription", "conjunction", "key", "position", "id", "at", "tie")
"""What is shown of every relation, beside its events."""

ASIDE = ("what", "reason")
"""What is said of a row that is no relation."""

Shape = Literal["array", "slots"]
"""How the events of a relation are given: in an array, or in a struct per slot."""

Selected = str | tuple[str, str]
"""A column of relations, or a field of one: `"Order.id"`, or `("Order", "id")`."""


@dataclass(frozen=True)
class SlotColumn:
    """The column of a slot in the relations of one subscription."""

    name: str
    places: Mapping[int, int]
    """Where its event is among those of a relation, by the number of the conjunction."""
    everywhere: bool
    """Do all conjunctions have it?"""
    fields: tuple[tuple[str, str], ...]
    """What is shown of it, and the field of an event that has it."""


@dataclass(frozen=True)
class Job:
    """One question over one input."""

    subscriptions: tuple[Subscription, ...]
    topics: tuple[Topic, ...]
    """Topics of the input with the attributes that travel; the n-th has code n."""
    derived: tuple[Topic, ...]
    sets: tuple[SubscriptionSet, ...]
    shown: tuple[str, ...]
    """Names of attributes that the events of a relation are shown with."""
    time_ordered: bool = True
    """False where the order is a log's own and times may go back."""
    skip_bad: bool = False
    """What becomes of a row that cannot be an event: skipped and told, or the end of the run."""
    unique_us: int = 0
    """An id that comes again within this time is set aside; 0: ids are not compared."""
    muted: frozenset[str] = frozenset()
    """Subscriptions that nobody wants any more, but whose kernel others still live in."""
    shape: Shape = "array"
    tells: bool = True
    """Do tasks give rows that tell other things among the relations: what was set aside, counts?"""
    select: frozenset[tuple[str, str]] = frozenset()
    """Columns, and fields of them, that are made of a relation; none: all."""

    @cached_property
    def columns(self) -> tuple[Wanted, ...]:
        """The attributes that travel, with their kinds, each once; nulls need no column."""
        found = dict.fromkeys(pair for topic in self.topics for pair in topic.attributes.items())
        return tuple(pair for pair in found if pair[1] is not Kind.NULL)

    @cached_property
    def fields(self) -> tuple[tuple[str, Wanted], ...]:
        """The attributes of a shown event: field name, and where the value comes from."""
        kinds: dict[str, dict[Kind, None]] = {}
        for topic in (*self.topics, *self.derived):
            for name, kind in topic.attributes.items():
                if name in self.shown and kind is not Kind.NULL:
                    kinds.setdefault(name, {})[kind] = None
        return tuple(
            (name if len(found) == 1 else f"{name}:{kind}", (name, kind))
            for name, found in sorted(kinds.items())
            for kind in found
        )

    @cached_property
    def whole_plan(self) -> Plan:
        """The plan of all subscriptions together: what the kernel alone would follow."""
        return compile_plan(self.subscriptions, schemas((*self.topics, *self.derived)))

    @cached_property
    def slots(self) -> tuple[SlotColumn, ...]:
        """A column per slot, where there is one question; else none.

        There is none either where Spark would take one column for another.
        """
        if len(self.subscriptions) - len(self.muted) != 1:
            return ()
        plan = next(one for one in self.whole_plan.subscriptions if one.name not in self.muted)
        places: dict[Slot, dict[int, int]] = {}
        for conjunction in plan.conjunctions:
            for place, slot in enumerate(conjunction.whole.slots):
                places.setdefault(slot, {})[conjunction.number] = place
        names = [*HEAD, *ASIDE, *(_column_name(slot, list(places)) for slot in places)]
        if _alike(names):
            return ()
        return tuple(
            SlotColumn(
                _column_name(slot, list(places)),
                found,
                len(found) == len(plan.conjunctions),
                self._slot_fields(slot),
            )
            for slot, found in sorted(places.items())
        )

    def _slot_fields(self, slot: Slot) -> tuple[tuple[str, str], ...]:
        kinds = self.whole_plan.schemas[slot.topic].attributes
        own = [(name, name) for name in OWN_FIELDS]
        own += [
            (name, field)
            for field, (name, kind) in self.fields
            if kinds.get(name, Kind.NULL) is kind
        ]
        return tuple(own)

    def relations_only(self, select: Iterable[Selected] = (), *, counted: bool = False) -> Job:
        """The same question, answered with nothing but relations: by slot where that can be.

        With `select`, only these columns, and fields of them (`Order.id`), are made. With
        `counted`, what the buckets count is told beside them.
        """
        shape: Shape = "slots" if self.slots else "array"
        return replace(self, shape=shape, tells=counted)._selecting(select)

    def with_aside(self, select: Iterable[Selected] = ()) -> Job:
        """The same question, answered with relations, rows set aside, and counts."""
        return replace(self, shape="array", tells=True)._selecting(select)

    def _selecting(self, select: Iterable[Selected]) -> Job:
        return replace(self, select=frozenset(self._selected(one) for one in select))

    def _selected(self, wanted: Selected) -> tuple[str, str]:
        """A column, and a field of it or nothing, by the words in which somebody selects it."""
        known = self.selectable
        pairs = [(column, field) for column in known for field in ("", *known[column])]
        if isinstance(wanted, str):
            found = [(c, f) for c, f in pairs if wanted == (f"{c}.{f}" if f else c)]
        else:
            found = [pair for pair in pairs if pair == tuple(wanted)]
        if len(found) > 1:
            raise UsageError(
                f"select has '{wanted}', which may mean {len(found)} things",
                hint=f"say which as a pair: {' or '.join(map(str, found))}",
            )
        if not found:
            name = wanted if isinstance(wanted, str) else ".".join(map(str, wanted))
            fits = [c for c in known if known[c] and name.startswith(f"{c}.")]
            rest = [f"{c}.{one}" for c in fits for one in known[c]] or list(known)
            raise UsageError(
                f"select has '{name}', which relations of this question do not have",
                hint=f"one of {', '.join(rest)}",
            )
        return found[0]

    @property
    def selectable(self) -> dict[str, tuple[str, ...]]:
        """What there is to select: columns, with the fields of those that hold events."""
        head: dict[str, tuple[str, ...]] = dict.fromkeys(HEAD, ())
        if self.shape == "slots":
            return head | {s.name: tuple(name for name, _ in s.fields) for s in self.slots}
        return head | {"events": (*OWN_FIELDS, *(field for field, _ in self.fields))}

    def is_made(self, column: str, field: str = "") -> bool:
        """Is a column of relations wanted, or one field of it?"""
        if not self.select or (column, "") in self.select:
            return True
        if field:
            return (column, field) in self.select
        return any(name == column for name, _ in self.select)

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """Each subscription's place in the order of delivery."""
        return {one.name: index for index, one in enumerate(self.whole_plan.subscriptions)}

    @cached_property
    def plans(self) -> tuple[Plan, ...]:
        """One plan per set. It knows only what its own subscriptions read, so that it stays the
        same, and its saved state good, whatever else is asked beside it."""
        known = schemas((*self.topics, *self.derived))
        found = []
        for one in self.sets:
            mine = {
                topic: Topic(
                    topic, {n: k for n, k in known[topic].attributes.items() if n in names}
                )
                for topic, names in read_by(one.subscriptions).items()
            }
            mine |= {t: known[t] for t in emitters(one.subscriptions)}
            found.append(compile_plan(one.subscriptions, mine))
        return tuple(found)

    @cached_property
    def fingerprints(self) -> tuple[str, ...]:
        """One per set: another question, or other settings that its saved state depends on, have
        another."""
        settings = f"{self.time_ordered} {self.unique_us}"
        return tuple(
            hashlib.blake2b(
                repr(
                    (settings, one.key, [each.fingerprint for each in plan.subscriptions])
                ).encode(),
                digest_size=16,
            ).hexdigest()
            for one, plan in zip(self.sets, self.plans, strict=True)
        )

    @cached_property
    def packed(self) -> bytes:
        """The job as bytes, plans included, so that no worker has to work them out again."""
        _ = self.plans, self.ranks, self.slots, self.fingerprints
        return pickle.dumps(self)

    @cached_property
    def dead_sets(self) -> tuple[int, ...]:
        """Sets of which nobody wants a subscription any more."""
        return tuple(
            index
            for index, one in enumerate(self.sets)
            if all(subscription.name in self.muted for subscription in one.subscriptions)
        )

    @cached_property
    def first_sets(self) -> Mapping[str, int]:
        """By topic, the first of the sets that read it and that somebody still wants."""
        found: dict[str, int] = {}
        for index, one in enumerate(self.sets):
            if index not in self.dead_sets:
                for topic in one.topics:
                    found.setdefault(topic, index)
        return found


def make_job(
    subscriptions: Sequence[Subscription],
    known: Mapping[str, Topic],
    derived: Mapping[str, Topic],
    *,
    attributes: Sequence[str] | str | None = None,
    time_ordered: bool = True,
    skip_bad: bool = False,
    unique_us: int = 0,
    generations: Sequence[Sequence[str]] | None = None,
    muted: Iterable[str] = (),
) -> Job:
    """A job of checked subscriptions over known topics.

    `attributes` are shown with a relation's events: those named, `"*"` for all, or (None) those
    that the subscriptions themselves read. `generations` are names of subscriptions that came
    together: each generation has kernels of its own, so that a later one can be added.
    """
    read = {topic: names for topic, names in read_by(subscriptions).items() if topic in known}
    if attributes is None:
        shown = sorted({name for names in read_by(subscriptions).values() for name in names})
    elif attributes == "*":
        shown = sorted({name for topic in read for name in known[topic].attributes})
    else:
        shown = sorted({attributes} if isinstance(attributes, str) else set(attributes))
        _check_shown(shown, [known[topic] for topic in read], derived)
    if twins := _alike([*OWN_FIELDS, *shown]):
        raise UsageError(
            f"an event cannot be shown with '{twins[0]}' and '{twins[1]}': to Spark that is one "
            f"name, and every event is shown with {', '.join(OWN_FIELDS)}",
            hint="rename the column, or name the attributes to show: attributes=[…]",
        )
    topics = [
        Topic(
            topic,
            {
                name: kind
                for name, kind in known[topic].attributes.items()
                if name in names or name in shown
            },
        )
        for topic, names in read.items()
    ]
    return Job(
        tuple(subscriptions),
        tuple(sorted(topics, key=lambda topic: topic.name)),
        tuple(derived.values()),
        tuple(
            one
            for names in generations or [[one.name for one in subscriptions]]
            for one in sets_of([each for each in subscriptions if each.name in names])
        ),
        tuple(shown),
        time_ordered,
        skip_bad,
        unique_us,
        frozenset(muted),
    )


def _alike(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that are one to Spark, if there are any."""
    known: dict[str, str] = {}
    for name in names:
        if (other := known.setdefault(name.lower(), name)) is not name:
            return other, name
    return None


def _column_name(slot: Slot, slots: Sequence[Slot]) -> str:
    """Its topic, numbered where the topic has several."""
    several = any(other.topic == slot.topic and other != slot for other in slots)
    return f"{slot.topic}_{slot.instance}" if several else slot.topic


def _check_shown(
    shown: Sequence[str], topics: Sequence[Topic], derived: Mapping[str, Topic]
) -> None:
    known = {name for topic in (*topics, *derived.values()) for name in topic.attributes}
    for name in shown:
        if name not in known:
            raise unknown_attribute(topics[0], name)


def read_by(subscriptions: Sequence[Subscription]) -> dict[str, set[str]]:
    """The attributes that subscriptions read, by topic; reserved names left out."""
    found: dict[str, set[str]] = {}
    for one in subscriptions:
        for topic in one.topics:
            found.setdefault(topic, set()).update(one.partition_by)
        sides = [
            side
            for conjunction in one.conjunctions
            for predicate in conjunction.predicates
            if isinstance(predicate, Comparison)
            for side in (predicate.left, predicate.right)
        ]
        sides += [field.value for field in one.emit.fields] if one.emit else []
        for side in sides:
            for attribute in attributes_of(side):
                found[attribute.slot.topic].add(attribute.name)
    return {topic: names - RESERVED.keys() for topic, names in found.items()}
