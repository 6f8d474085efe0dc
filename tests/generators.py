"""Random cases for correlation: subscriptions, topics and events that fit each other.

One function makes them, `random_case`, from a `random.Random`: cheap enough for campaigns of
10^5 cases, and wrapped as a Hypothesis strategy by `cases`. Domains are tiny and predicates few
and weak, so that most cases deliver; sizes are small, so that the brute-force oracle stays fast.
Every case is well-typed: an attribute has one kind per topic, events keep to it (or are null).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from hypothesis import strategies as st
from msgspec.structs import replace

from concordant.model.event import Event
from concordant.model.expression import Arithmetic, Attribute, Constant, Expression, Slot
from concordant.model.kind import Kind, Value
from concordant.model.predicate import Comparison, Predicate, Wildcard, conjunction_of
from concordant.model.subscription import (
    POLICIES,
    QUEUED_COUNT_MAX,
    Conjunction,
    Emit,
    Field,
    Policy,
    Subscription,
)
from concordant.model.topic import Topic, TopicOrder, schemas

ALL_POLICIES = tuple(
    Policy(p.match, p.contiguous, staged, p.consume) for staged in (False, True) for p in POLICIES
)
"""The thesis's sixteen policies, and each of them staged."""

SLOT_COUNT_MAX = 5

Domain = tuple[Value, ...]

DOMAINS: dict[Kind, tuple[Domain, ...]] = {
    Kind.INT: ((0, 1), (0, 1, 2, 3), (0, 1, 2, 3), (-1, 0, 2**53, 2**53 + 1, 2**63 - 1)),
    Kind.FLOAT: (
        (0.0, 0.5, 1.0),
        (0.0, 0.5, 1.0, 2.0, math.nan),
        (0.0, 1.0, math.inf, -math.inf, math.nan, 1e308, float(2**53)),
    ),
    Kind.STRING: (("x", "y"), ("", "x", "xy", "é", "\ue000", "\U0001f600")),
    Kind.BOOL: ((False, True),),
    Kind.TIME: ((0, 1, 2, 3),),
    Kind.NULL: ((None,),),
}
"""Values an attribute may take; one tuple is chosen per topic and attribute."""

PARTITION_DOMAINS: dict[Kind, Domain] = {
    Kind.INT: (0, 1),
    Kind.STRING: ("x", "y"),
    Kind.BOOL: (False, True),
    Kind.FLOAT: (0.5, 1.0, math.nan),
}

ORDERED = ("<", ">", "<=", ">=", "<=", ">=", "=", "!=")
WEAK = ("<=", ">=", "!=", "!=", "=")
EQUALITY = ("=", "!=")
SOURCES = ("p", "q", "r")
SUBSCRIPTION_NAMES = ("S", "T", "U", "a b")
DERIVED_NAMES = ("AA", "Bx", "E", "Z")
"""Names that sort before, between and after the topics of the events."""


@dataclass(frozen=True)
class Case:
    """One run: everything that the oracle and the engine take."""

    subscriptions: tuple[Subscription, ...]
    topics: tuple[Topic, ...]
    """Schemas of the topics of `events`."""
    events: tuple[Event, ...]
    topic_order: TopicOrder
    derived_topics: tuple[Topic, ...] = ()
    """Schemas of the topics that subscriptions emit."""
    time_ordered: bool = True
    """Are the events in the order of (time, source, seq)?"""

    def __str__(self) -> str:
        lines = [str(subscription) for subscription in self.subscriptions]
        lines += [str(topic) for topic in (*self.topics, *self.derived_topics)]
        lines += [f"{place} {event}" for place, event in enumerate(self.events, start=1)]
        return "\n".join([*lines, f"{self.topic_order} time_ordered={self.time_ordered}"])


def cases(policy: Policy | None = None) -> st.SearchStrategy[Case]:
    """The same cases for Hypothesis."""
    return st.integers(0, 2**64 - 1).map(lambda seed: random_case(Random(seed), policy=policy))


def random_case(rng: Random, *, policy: Policy | None = None) -> Case:
    """A case under the given policy, or with a policy drawn for each subscription."""
    maker = _Maker(rng)
    topics, domains = maker.topics()
    known = dict(topics)
    derived: dict[str, Topic] = {}
    subscriptions: list[Subscription] = []
    slots_used = 0
    count = rng.choice((1, 1, 2, 2, 2, 3, 3))
    for number, name in enumerate(rng.sample(SUBSCRIPTION_NAMES, count)):
        subscription = maker.subscription(
            name, known, tuple(derived), policy or rng.choice(ALL_POLICIES)
        )
        slots_used = max(slots_used, *(_slot_count(c) for c in subscription.conjunctions))
        subscription = maker.with_emit(subscription, known, derived, likely=number < 2)
        known.update(derived)
        subscriptions.append(subscription)
    time_ordered = rng.random() < 0.9
    events = maker.events(
        topics, domains, count_max={1: 40, 2: 40, 3: 26, 4: 18}.get(slots_used, 14)
    )
    if not time_ordered:
        events = maker.with_mixed_times(events)
    names = list(known)
    rng.shuffle(names)
    order = TopicOrder(tuple(names[: rng.randint(0, len(names))]) if rng.random() < 0.3 else ())
    rng.shuffle(subscriptions)
    return Case(
        tuple(subscriptions),
        tuple(topics.values()),
        tuple(events),
        order,
        tuple(derived.values()),
        time_ordered,
    )


def _slot_count(conjunction: Conjunction) -> int:
    return sum(conjunction.instances.values())


class _Maker:
    """Draws the pieces of a case from one source of randomness."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng

    # --- topics and events ------------------------------------------------------------------------

    def topics(self) -> tuple[dict[str, Topic], dict[tuple[str, str], Domain]]:
        """One to four topics; `k` and `j` have the same kind everywhere, for `partition by`."""
        rng = self.rng
        shared = {"k": rng.choice(list(PARTITION_DOMAINS)), "j": rng.choice((Kind.INT, Kind.BOOL))}
        found: list[Topic] = []
        domains: dict[tuple[str, str], Domain] = {}
        for name in "ABCD"[: rng.choice((1, 2, 2, 2, 3, 3, 4))]:
            kinds = {
                "a": rng.choice((Kind.INT, Kind.INT, Kind.INT, Kind.FLOAT)),
                "b": rng.choice((Kind.FLOAT, Kind.INT, Kind.FLOAT, Kind.NULL)),
                "c": rng.choice((Kind.STRING, Kind.STRING, Kind.BOOL, Kind.TIME)),
            }
            domains.update({(name, key): rng.choice(DOMAINS[kind]) for key, kind in kinds.items()})
            domains.update({(name, key): PARTITION_DOMAINS[kind] for key, kind in shared.items()})
            found.append(Topic(name, {**kinds, **shared}))
        return schemas(found), domains

    def events(
        self, topics: dict[str, Topic], domains: dict[tuple[str, str], Domain], *, count_max: int
    ) -> list[Event]:
        """Events in the order of (time, source, seq), with equal times and gaps between seqs."""
        rng = self.rng
        names = list(topics)
        null_share = rng.choice((0.0, 0.0, 0.1, 0.2))
        steps = rng.choice(((0, 1), (1,), (0, 0, 1, 2), (0, 0, 0, 5)))
        sources = SOURCES[: rng.randint(1, 3)]
        seqs = dict.fromkeys(sources, 0)
        time = rng.choice((0, 0, -3))
        found: list[Event] = []
        for _ in range(max(rng.randint(5, count_max), rng.randint(5, count_max))):
            time += rng.choice(steps)
            source = rng.choice(sources)
            seqs[source] += rng.choice((1, 1, 2))
            topic = rng.choice(names)
            attributes: dict[str, Value] = {}
            for name in topics[topic].attributes:
                if rng.random() >= null_share:
                    attributes[name] = rng.choice(domains[topic, name])
                elif rng.random() < 0.5:
                    attributes[name] = None
            found.append(Event(topic, source, seqs[source], time, attributes))
        return sorted(found, key=lambda event: event.order_key)

    def with_mixed_times(self, events: list[Event]) -> list[Event]:
        """The same events in the same order, with times that go back and forth."""
        times = [event.time for event in events]
        self.rng.shuffle(times)
        return [
            Event(event.topic, event.source, event.seq, time, event.attributes)
            for event, time in zip(events, times, strict=True)
        ]

    # --- subscriptions ----------------------------------------------------------------------------

    def subscription(
        self, name: str, known: dict[str, Topic], derived: tuple[str, ...], policy: Policy
    ) -> Subscription:
        rng = self.rng
        readable = list(known)
        conjunctions: dict[str, Conjunction] = {}
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3))):
            conjunction = self.conjunction(known, readable, derived)
            conjunctions.setdefault(conjunction.canonical, conjunction)
        chosen = tuple(conjunctions.values())
        instances = [count for c in chosen for count in c.instances.values()]
        topics = [known[topic] for c in chosen for topic in c.instances]
        within_us = rng.choice((0, 2, 4, 8, 8, 16)) if rng.random() < 0.22 else None
        # caps together with `within` are where "too old" matters, so they come together often
        is_capped = rng.random() < (0.2 if within_us is None else 0.5)
        return Subscription(
            name,
            chosen,
            policy,
            partition_by=self.partition_by(topics),
            within_us=within_us,
            queue_count_max=max(instances) + rng.choice((0, 0, 1, 3)) if is_capped else None,
            queued_count_max=rng.randint(3, 14) if rng.random() < 0.15 else QUEUED_COUNT_MAX,
        )

    def conjunction(
        self, known: dict[str, Topic], readable: list[str], derived: tuple[str, ...]
    ) -> Conjunction:
        rng = self.rng
        names = rng.sample(readable, min(len(readable), rng.choice((1, 1, 2, 2, 2, 3))))
        if derived and rng.random() < 0.6:
            names = list(dict.fromkeys([rng.choice(derived), *names]))[: max(len(names), 1)]
        slots: list[Slot] = []
        for place, name in enumerate(names):
            room = SLOT_COUNT_MAX - len(slots) - (len(names) - place - 1)
            count = min(rng.choice((1, 1, 1, 2, 2, 3)), room)
            slots += [Slot(name, instance) for instance in range(1, count + 1)]
        predicates: list[Predicate] = [Wildcard(slot) for slot in slots]
        for _ in range(rng.choice((0, 0, 1, 1, 1, 2, 2, 3))):
            predicate = self.comparison(known, slots)
            if predicate is not None:
                predicates.append(predicate)
        rng.shuffle(predicates)
        return Conjunction(conjunction_of(predicates))

    def partition_by(self, topics: list[Topic]) -> tuple[str, ...]:
        """Attributes that every topic has, of one kind; `source` too."""
        rng = self.rng
        if rng.random() < 0.78:
            return ()
        shared = [
            name
            for name in ("k", "j")
            if len({topic.kind(name) for topic in topics}) == 1 and topics[0].kind(name) is not None
        ]
        names = rng.choice((["k"], ["k"], ["j"], ["j", "k"], ["source"], ["k", "source"]))
        return tuple(name for name in names if name in shared or name == "source")

    def with_emit(
        self,
        subscription: Subscription,
        known: dict[str, Topic],
        derived: dict[str, Topic],
        *,
        likely: bool,
    ) -> Subscription:
        """The subscription, perhaps with a derived topic, whose schema is added to `derived`.

        Several subscriptions may emit the same topic, with the same kinds of fields. Only one
        that reads no derived topic joins in, so that no cycle can arise.
        """
        rng = self.rng
        if rng.random() >= (0.7 if likely else 0.25):
            return subscription
        first, *others = [c.instances for c in subscription.conjunctions]
        slots = [
            Slot(topic, instance)
            for topic, count in first.items()
            for instance in range(1, count + 1)
            if all(other.get(topic, 0) >= instance for other in others)
        ]
        if derived and rng.random() < 0.5 and not derived.keys() & set(subscription.topics):
            topic = rng.choice(list(derived.values()))
            fields = [
                Field(name, self.field_of_kind(known, slots, name, kind))
                for name, kind in topic.attributes.items()
            ]
            return replace(subscription, emit=Emit(topic.name, tuple(fields)))
        fields = []
        kinds: dict[str, Kind] = {}
        for name in ("a", "b", "c", "k", "j") if slots else ():
            if rng.random() < 0.25:
                continue
            slot = rng.choice(slots)
            expression, kind = self.field(known[slot.topic], slot, name)
            if expression is not None:
                fields.append(Field(name, expression))
                kinds[name] = kind
        name = rng.choice([name for name in DERIVED_NAMES if name not in derived])
        derived[name] = Topic(name, kinds)
        return replace(subscription, emit=Emit(name, tuple(fields)))

    def field_of_kind(
        self, known: dict[str, Topic], slots: list[Slot], name: str, kind: Kind
    ) -> Expression:
        """An attribute of that name and kind if a slot has one, otherwise a constant."""
        fitting = [slot for slot in slots if known[slot.topic].kind(name) is kind]
        if fitting:
            return Attribute(self.rng.choice(fitting), name)
        return Constant(self.constant(kind), kind)

    def field(self, topic: Topic, slot: Slot, name: str) -> tuple[Expression | None, Kind]:
        """The slot's attribute of the same name, or a number calculated from it."""
        rng = self.rng
        kind = topic.kind(name)
        if name == "b" and rng.random() < 0.2:
            return Attribute(slot, "seq"), Kind.INT
        if name == "c" and rng.random() < 0.2:
            reserved = rng.choice((("source", Kind.STRING), ("time", Kind.TIME)))
            return Attribute(slot, reserved[0]), reserved[1]
        if kind is None or kind is Kind.NULL:
            return None, Kind.NULL
        if kind.numeric and name in "ab" and rng.random() < 0.3:
            op = rng.choice("+-*/")
            result = Kind.FLOAT if op == "/" else kind
            return Arithmetic(op, Attribute(slot, name), Constant(2, Kind.INT)), result
        return Attribute(slot, name), kind

    # --- predicates -------------------------------------------------------------------------------

    def comparison(self, known: dict[str, Topic], slots: list[Slot]) -> Comparison | None:
        """A predicate of some shape on these slots; None if the topics have nothing to compare."""
        rng = self.rng
        pair = rng.sample(slots, 2) if len(slots) > 1 else []
        if not pair or rng.random() < 0.3:
            return self.unary(known, rng.choice(slots))
        left, right = pair
        shape = rng.random()
        if shape < 0.12:
            op = "<" if rng.random() < 0.6 else rng.choice(ORDERED)
            return Comparison(op, Attribute(left, "position"), Attribute(right, "position"))
        if shape < 0.24:
            return self.on_reserved(left, right)
        if shape < 0.44:
            return self.calculated(known, left, right)
        return self.plain(known, left, right)

    def unary(self, known: dict[str, Topic], slot: Slot) -> Comparison | None:
        rng = self.rng
        topic = known[slot.topic]
        shape = rng.random()
        if shape < 0.1:
            constant = Constant(rng.choice(SOURCES), Kind.STRING)
            return Comparison(rng.choice(ORDERED), Attribute(slot, "source"), constant)
        if shape < 0.2:
            return Comparison(
                rng.choice(WEAK), Attribute(slot, "seq"), Constant(rng.randint(0, 4), Kind.INT)
            )
        if shape < 0.27:
            return Comparison(
                rng.choice(WEAK), Attribute(slot, "time"), Constant(rng.randint(0, 6), Kind.TIME)
            )
        numbers = [name for name, kind in topic.attributes.items() if kind.numeric]
        if shape < 0.5 and len(numbers) > 1:
            one, two = (Attribute(slot, name) for name in rng.sample(numbers, 2))
            if rng.random() < 0.5:
                return Comparison(rng.choice(ORDERED), one, two)
            return Comparison(
                rng.choice(ORDERED),
                Arithmetic(rng.choice("+-*/"), one, two),
                Constant(rng.choice((0, 1, 2)), Kind.INT),
            )
        if not topic.attributes:
            return None
        name, kind = rng.choice(list(topic.attributes.items()))
        if kind is Kind.NULL:
            # a predicate that is never true: rare, or nothing would be delivered
            if rng.random() < 0.8:
                return None
            return Comparison("!=", Attribute(slot, name), Constant(1, Kind.INT))
        constant = Constant(self.constant(kind), kind)
        ops = EQUALITY if kind is Kind.BOOL else (*ORDERED, *WEAK)
        left, right = Attribute(slot, name), constant
        if rng.random() < 0.2:
            return Comparison(rng.choice(ops), right, left)
        return Comparison(rng.choice(ops), left, right)

    def constant(self, kind: Kind) -> bool | int | float | str:
        rng = self.rng
        if kind is Kind.INT:
            return rng.choice((0, 1, 1, 2, 3, 2**53))
        if kind is Kind.FLOAT:
            return rng.choice((0.0, 0.5, 1.0, 1.5, 1e308))
        if kind is Kind.STRING:
            return rng.choice(("", "x", "y", "é"))
        if kind is Kind.BOOL:
            return rng.random() < 0.5
        return rng.randint(0, 3)

    def on_reserved(self, left: Slot, right: Slot) -> Comparison:
        """`source`, `seq` and `time` of two slots; also a duration between them."""
        rng = self.rng
        name = rng.choice(("source", "seq", "time", "time"))
        one, two = Attribute(left, name), Attribute(right, name)
        if name == "time" and rng.random() < 0.5:
            return Comparison(
                rng.choice(("<=", ">=", "!=")),
                Arithmetic("-", one, two),
                Constant(rng.choice((0, 1, 3)), Kind.INT),
            )
        return Comparison(rng.choice((*WEAK, "<", ">")), one, two)

    def plain(self, known: dict[str, Topic], left: Slot, right: Slot) -> Comparison | None:
        """`T.a op U.b`, mostly with the same attribute on both sides."""
        rng = self.rng
        ours, theirs = known[left.topic].attributes, known[right.topic].attributes
        fitting = [
            (one, two)
            for one, kind in ours.items()
            for two, other in theirs.items()
            if kind is not Kind.NULL and (kind is other or (kind.numeric and other.numeric))
        ]
        same = [pair for pair in fitting if pair[0] == pair[1]]
        if not fitting:
            return None
        one, two = rng.choice(same if same and rng.random() < 0.75 else fitting)
        if ours[one] is Kind.BOOL:
            op = rng.choice(EQUALITY)
        else:
            op = rng.choice((*ORDERED, *WEAK))
        return Comparison(op, Attribute(left, one), Attribute(right, two))

    def calculated(self, known: dict[str, Topic], left: Slot, right: Slot) -> Comparison | None:
        """Arithmetic on one side, on both, or with both slots on one side."""
        rng = self.rng
        one, two = self.number(known, left), self.number(known, right)
        if one is None or two is None:
            return None
        small = Constant(*rng.choice(((1, Kind.INT), (2, Kind.INT), (0.5, Kind.FLOAT))))
        op, shape = rng.choice("+-*/"), rng.random()
        if shape < 0.4:
            return Comparison(rng.choice(ORDERED), one, Arithmetic(op, two, small))
        if shape < 0.7:
            return Comparison(rng.choice(ORDERED), Arithmetic(op, one, two), small)
        if shape < 0.85:
            # both slots on one side, and one of them on the other side as well
            return Comparison(rng.choice(ORDERED), Arithmetic(op, one, two), one)
        return Comparison(
            rng.choice(ORDERED),
            Arithmetic(op, one, small),
            Arithmetic(rng.choice("+-*/"), two, small),
        )

    def number(self, known: dict[str, Topic], slot: Slot) -> Attribute | None:
        names = [name for name, kind in known[slot.topic].attributes.items() if kind.numeric]
        return Attribute(slot, self.rng.choice(names)) if names else None
