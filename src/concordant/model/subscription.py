"""Subscriptions: what a subscriber asks for, as plain values.

A subscription is a disjunction of conjunctions of predicates with its policies and bounds. It does
not know topics' schemas (see `language.check`) nor how it is matched (see `correlate.plan`).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from concordant.errors import UsageError
from concordant.model.expression import Expression, Slot, dotted, quoted, slots_of
from concordant.model.kind import RESERVED
from concordant.model.predicate import Predicate

CONJUNCTION_COUNT_MAX = 256
"""More conjunctions than this are refused: nobody reads them, and each costs a queue."""

INSTANCE_MAX = 64
"""The largest instance number of one topic; also the largest number of slots of a conjunction."""

QUEUED_COUNT_MAX = 10_000_000
"""Default for all queued events of one subscription: generous, so that memory stays bounded."""


class Match(StrEnum):
    """Which events are tried first."""

    FIRST = "first"
    RECENT = "recent"


class Consume(StrEnum):
    """What leaves the queues after a match."""

    PREFIX = "prefix"
    MATCHED = "matched"
    SUFFIX = "suffix"
    SLIDE = "slide"


class Policy(msgspec.Struct, frozen=True):
    """How combinations are chosen and events consumed."""

    match: Match = Match.FIRST
    contiguous: bool = False
    staged: bool = False
    consume: Consume = Consume.PREFIX

    def __str__(self) -> str:
        words = ["match", self.match.value]
        words += ["contiguous"] * self.contiguous + ["staged"] * self.staged
        return " ".join([*words, "consume", self.consume.value])


POLICIES = tuple(
    Policy(match, contiguous, False, consume)
    for consume in Consume
    for match in Match
    for contiguous in (False, True)
)
"""The thesis's sixteen policies, without `staged`."""


class Conjunction(msgspec.Struct, frozen=True):
    """Normalised predicates that must hold together, in written order."""

    predicates: tuple[Predicate, ...]

    @property
    def instances(self) -> dict[str, int]:
        """The largest instance of each topic, by topic name."""
        largest: dict[str, int] = {}
        for predicate in self.predicates:
            for slot in predicate.slots:
                largest[slot.topic] = max(largest.get(slot.topic, 0), slot.instance)
        return dict(sorted(largest.items()))

    @property
    def canonical(self) -> str:
        """One text for all conjunctions with the same set of predicates."""
        return " and ".join(sorted(str(predicate) for predicate in self.predicates))

    def __str__(self) -> str:
        return " and ".join(str(predicate) for predicate in self.predicates)


class Field(msgspec.Struct, frozen=True):
    """One attribute of a derived event."""

    name: str
    value: Expression


class Emit(msgspec.Struct, frozen=True):
    """The derived topic that each relation becomes an event of."""

    topic: str
    fields: tuple[Field, ...] = ()

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        for name in names:
            if names.count(name) > 1 or name in RESERVED:
                raise UsageError(
                    f"'emit {self.topic}' gives {name!r} twice, or it is reserved",
                    hint=f"name each field once, and not {', '.join(RESERVED)}",
                )

    @property
    def slots(self) -> tuple[Slot, ...]:
        return slots_of(*(field.value for field in self.fields))

    def __str__(self) -> str:
        fields = ", ".join(f"{dotted(field.name)} = {field.value}" for field in self.fields)
        return f"emit {quoted(self.topic)}({fields})"


class Subscription(msgspec.Struct, frozen=True):
    """A question: a disjunction of conjunctions with policies and bounds."""

    name: str
    conjunctions: tuple[Conjunction, ...]
    policy: Policy = Policy()
    partition_by: tuple[str, ...] = ()
    within_us: int | None = None
    queue_count_max: int | None = None
    """Cap per conjunction, topic and partition; None is no cap."""
    queued_count_max: int = QUEUED_COUNT_MAX
    """Cap on all queued events of the subscription."""
    emit: Emit | None = None
    order: str | None = None
    """The order level asked for from a bus; tables are always totally ordered."""

    def __post_init__(self) -> None:
        _validate(self)

    @property
    def topics(self) -> tuple[str, ...]:
        """Every topic that some conjunction needs, sorted."""
        return tuple(sorted({topic for c in self.conjunctions for topic in c.instances}))

    @property
    def canonical_order(self) -> tuple[int, ...]:
        """Indexes of the conjunctions in the order in which events are given to them."""
        return tuple(
            sorted(range(len(self.conjunctions)), key=lambda i: self.conjunctions[i].canonical)
        )

    @property
    def canonical(self) -> str:
        """One text for all subscriptions that ask the same, whatever they are called."""
        texts = [self.conjunctions[i].canonical for i in self.canonical_order]
        return " or ".join(texts) + "".join(f" {clause}" for clause in self.clauses)

    @property
    def clauses(self) -> tuple[str, ...]:
        """The clauses after the formula, as text, defaults left out except the policy."""
        found = [str(self.policy)]
        if self.partition_by:
            found.append("partition by " + ", ".join(dotted(name) for name in self.partition_by))
        if self.within_us is not None:
            found.append(f"within {duration_text(self.within_us)}")
        if self.queue_count_max is not None:
            found.append(f"cap {self.queue_count_max}")
        if self.queued_count_max != QUEUED_COUNT_MAX:
            found.append(f"cap all {self.queued_count_max}")
        if self.emit is not None:
            found.append(str(self.emit))
        if self.order is not None:
            found.append(f"order {self.order}")
        return tuple(found)

    def __str__(self) -> str:
        formula = " or ".join(str(conjunction) for conjunction in self.conjunctions)
        lines = [formula, *self.clauses]
        return f"{quoted(self.name)}:\n" + "".join(f"  {line}\n" for line in lines)


_UNITS = {"d": 86_400_000_000, "h": 3_600_000_000, "min": 60_000_000, "s": 1_000_000, "ms": 1_000}


def duration_text(duration_us: int) -> str:
    """A duration in its largest whole unit.

    >>> duration_text(300_000_000)
    '5 min'
    """
    for unit, size in _UNITS.items():
        if duration_us and duration_us % size == 0:
            return f"{duration_us // size} {unit}"
    return f"{duration_us} us"


def _validate(subscription: Subscription) -> None:
    if not subscription.conjunctions:
        raise UsageError("a subscription needs at least one predicate", hint="name a topic")
    if len(subscription.conjunctions) > CONJUNCTION_COUNT_MAX:
        raise UsageError(
            f"the subscription has {len(subscription.conjunctions)} conjunctions, "
            f"and {CONJUNCTION_COUNT_MAX} are allowed",
            hint="split it into several subscriptions",
        )
    for conjunction in subscription.conjunctions:
        _validate_conjunction(subscription, conjunction)
    if len(set(subscription.partition_by)) != len(subscription.partition_by):
        raise UsageError("'partition by' names an attribute twice", hint="name each once")
    if "position" in subscription.partition_by:
        raise UsageError(
            "'partition by position' puts every event into a partition of its own",
            hint="partition by an attribute that related events share",
        )
    if subscription.within_us is not None and subscription.within_us < 0:
        raise UsageError("'within' takes a duration of at least zero", hint="within 5 min")
    if subscription.queued_count_max < 1:
        raise UsageError("'cap all' must be at least 1", hint="leave it out for the default")


def _validate_conjunction(subscription: Subscription, conjunction: Conjunction) -> None:
    instances = conjunction.instances
    largest = max(instances.values())
    if sum(instances.values()) > INSTANCE_MAX:
        raise UsageError(
            f"'{conjunction}' has {sum(instances.values())} slots, and {INSTANCE_MAX} are allowed",
            hint="an instance T[i] declares T[1] to T[i-1] as well",
        )
    cap = subscription.queue_count_max
    if cap is not None and cap < largest:
        raise UsageError(
            f"'cap {cap}' is smaller than the largest instance, {largest}",
            hint=f"give at least 'cap {largest}'; a smaller queue could never match",
        )
    for slot in subscription.emit.slots if subscription.emit else ():
        if instances.get(slot.topic, 0) < slot.instance:
            raise UsageError(
                f"'emit' reads {slot}, which the conjunction '{conjunction}' does not have",
                hint="use slots that every conjunction of the subscription has",
            )
