"""A history made ready for the correlation properties: who asked, published and delivered what.

A `Run` is an index over rows: publications by event, deliveries by process and conjunction, each
with its place among the steps of its process. It reads what a subscriber asked for from its
`subscribe` row (or takes it as a value), and knows no property.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

from concordant.errors import UsageError
from concordant.language import parse
from concordant.language.check import check
from concordant.model.event import Event
from concordant.model.expression import Attribute, Slot, attributes_of
from concordant.model.history import Row
from concordant.model.kind import Kind
from concordant.model.predicate import Comparison
from concordant.model.subscription import Conjunction, Subscription
from concordant.model.topic import Topic


@dataclass(frozen=True)
class Delivery:
    """A delivered relation and its place among the steps of its process."""

    row: Row
    place: int


@dataclass(eq=False)
class Asked:
    """One conjunction that one process asked for, and what was delivered for it."""

    process: str
    question: Subscription
    number: int
    place: int
    """Of the `subscribe` row."""
    deliveries: list[Delivery] = field(default_factory=list)

    @cached_property
    def conjunction(self) -> Conjunction:
        return self.question.conjunctions[self.number - 1]

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        return slots_of_conjunction(self.conjunction)

    @cached_property
    def terms(self) -> tuple[object, ...]:
        """Everything but the predicates: what must be equal for two questions to be comparable."""
        asked = self.question
        caps = (asked.queue_count_max, asked.queued_count_max)
        return (asked.policy, asked.partition_by, asked.within_us, *caps)

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """Equal for equal conjunctions under equal terms, whoever asks."""
        return (self.conjunction.canonical, *self.terms)

    @cached_property
    def first(self) -> dict[str, Delivery]:
        """The first delivery of each event, by its id: the one that counts under `slide`."""
        found: dict[str, Delivery] = {}
        for delivery in self.deliveries:
            for one in delivery.row.events:
                found.setdefault(one, delivery)
        return found

    @cached_property
    def relations(self) -> dict[tuple[str, ...], Delivery]:
        """The first delivery of each relation, by the ids of its events."""
        found: dict[tuple[str, ...], Delivery] = {}
        for delivery in self.deliveries:
            found.setdefault(delivery.row.events, delivery)
        return found

    def beginnings(self, count: int) -> dict[tuple[str, ...], Delivery]:
        """The first delivery of each relation's first events, as many as given."""
        found: dict[tuple[str, ...], Delivery] = {}
        for delivery in self.deliveries:
            found.setdefault(delivery.row.events[:count], delivery)
        return found


@dataclass(frozen=True)
class Publication:
    """A published event and the place of its publication among the steps of its process."""

    row: Row
    place: int

    @property
    def topic(self) -> str:
        return self.row.topics[0]


@dataclass
class Run:
    """One run's rows, indexed."""

    asked: list[Asked]
    published: dict[str, Publication]
    """By event id."""
    strangers: list[Row]
    """Deliveries that answer nothing their process asked for."""
    crashed: frozenset[str]
    arrivals: Mapping[str, Sequence[str]]
    """Per process, the ids of the events in the order in which it got them, where that is not the
    order of (time, source, seq)."""
    repeats_from_us: int | None = None
    """Since when the run repeats itself for ever, if it does; see `liveness`."""
    prefix_until_us: int = 0
    """Until when it had not yet begun to go in circles."""

    @staticmethod
    def of(
        rows: Iterable[Row],
        *,
        subscriptions: Mapping[str, Subscription] | None = None,
        arrivals: Mapping[str, Sequence[str]] | None = None,
        repeats_from_us: int | None = None,
        prefix_until_us: int = 0,
    ) -> Run:
        """Index rows. Subscriptions by name save the reading of their text."""
        kept = list(rows)
        published: dict[str, Publication] = {}
        asked: dict[tuple[str, str, int], Asked] = {}
        strangers: list[Row] = []
        crashed: set[str] = set()
        places: dict[str, int] = {}
        schemas = None if subscriptions is not None else _schemas(kept)
        for row in kept:
            place = places[row.process] = places.get(row.process, 0) + 1
            if row.step == "deliver":
                found = asked.get((row.process, row.subscription, row.conjunction))
                if found is None:
                    strangers.append(row)
                else:
                    found.deliveries.append(Delivery(row, place))
            elif row.step == "publish":
                published.setdefault(row.events[0], Publication(row, place))
            elif row.step == "subscribe":
                question = (
                    subscriptions[row.subscription]
                    if subscriptions is not None
                    else _read(row, schemas or {})
                )
                for number in range(1, len(question.conjunctions) + 1):
                    key = (row.process, row.subscription, number)
                    asked[key] = Asked(row.process, question, number, place)
            elif row.step == "crash":
                crashed.add(row.process)
        return Run(
            [*asked.values()],
            published,
            strangers,
            frozenset(crashed),
            arrivals or {},
            repeats_from_us,
            prefix_until_us,
        )

    @cached_property
    def by_identity(self) -> list[list[Asked]]:
        """Askers of the same conjunction under the same terms, in groups."""
        groups: dict[tuple[object, ...], list[Asked]] = {}
        for one in self.asked:
            groups.setdefault(one.identity, []).append(one)
        return [*groups.values()]

    @cached_property
    def by_process(self) -> dict[str, list[Asked]]:
        groups: dict[str, list[Asked]] = {}
        for one in self.asked:
            groups.setdefault(one.process, []).append(one)
        return groups

    @cached_property
    def _usual_positions(self) -> dict[str, int]:
        known = [one.row.event for one in self.published.values() if one.row.event is not None]
        return {e.id: i for i, e in enumerate(sorted(known, key=lambda e: e.order_key), start=1)}

    def positions(self, process: str) -> Mapping[str, int]:
        """The place of each event in the order in which a process got them."""
        if process not in self.arrivals:
            return self._usual_positions
        return {one: i for i, one in enumerate(self.arrivals[process], start=1)}

    def event(self, event_id: str) -> Event | None:
        """The published event itself, if the history has it."""
        found = self.published.get(event_id)
        return None if found is None else found.row.event


@lru_cache(maxsize=65_536)
def slots_of_conjunction(conjunction: Conjunction) -> tuple[Slot, ...]:
    """The slots of a relation: topics in topic order, each as often as its largest instance."""
    return tuple(
        Slot(topic, instance)
        for topic, count in conjunction.instances.items()
        for instance in range(1, count + 1)
    )


def attributes_read(question: Subscription) -> Iterator[Attribute]:
    """Every attribute that the predicates and the emitted fields of a subscription read."""
    for conjunction in question.conjunctions:
        for predicate in conjunction.predicates:
            if isinstance(predicate, Comparison):
                yield from attributes_of(predicate.left)
                yield from attributes_of(predicate.right)
    for field_ in question.emit.fields if question.emit else ():
        yield from attributes_of(field_.value)


def _read(row: Row, schemas: Mapping[str, Topic]) -> Subscription:
    if not row.text:
        raise UsageError(
            f"the history has no text for the subscription {row.subscription!r} of {row.process}",
            hint="record the subscription's text when it begins",
        )
    (question,) = parse(row.text, default_name=row.subscription)
    kinds: dict[str, dict[str, Kind]] = {topic: {} for topic in question.topics}
    for topic in kinds:
        kinds[topic] |= dict.fromkeys(question.partition_by, Kind.NULL)
    for one in attributes_read(
        question
    ):  # an attribute that nobody published is null, and never true
        kinds[one.slot.topic][one.name] = Kind.NULL
    known = {
        topic: Topic(topic, {**mine, **(schemas[topic].attributes if topic in schemas else {})})
        for topic, mine in kinds.items()
    }
    return check([question], known)[0]


_KINDS = {bool: Kind.BOOL, int: Kind.INT, float: Kind.FLOAT, str: Kind.STRING}


def _schemas(rows: Iterable[Row]) -> dict[str, Topic]:
    """What the published events show of their topics."""
    kinds: dict[str, dict[str, Kind]] = {}
    for row in rows:
        if row.step == "publish" and row.event is not None:
            mine = kinds.setdefault(row.event.topic, {})
            for name, value in row.event.attributes.items():
                if value is not None:
                    mine[name] = _KINDS[type(value)]
    return {topic: Topic(topic, mine) for topic, mine in kinds.items()}
