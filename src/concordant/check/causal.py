"""What was seen of a run of causal delivery, and the truth about which event follows which.

A `Witness` is told, step by step, what brokers ordered and delivered and what reached applications.
From that alone it works out the causal past of every ordered event, as a bit mask: an event follows
whatever its broker had delivered, and whatever its publisher had delivered or had had ordered
before. It reads nothing that the protocol says about pasts; that is what the checkers compare.

One thing is no violation, by design: an event that died with its broker, known only to a client
that then publishes elsewhere. That the client's own event follows it is known; what the lost event
itself followed, nobody can know any longer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

Id = tuple[str, int]
"""Origin and number of an ordered event."""

Vector = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Fact:
    """An event as a broker ordered it."""

    id: Id
    event: str
    at: Mapping[str, int]
    round: int
    past: Vector
    """What it says it follows."""
    stable: Vector
    """What was stable at that moment, for its broker or whoever ordered something before."""
    delivered_count: int
    """How many events its broker had delivered."""
    knew: tuple[Id, ...]
    """What its publisher had delivered."""
    published: tuple[str, ...]
    """What its publisher had published: ids of events."""
    publisher: str


@dataclass(frozen=True)
class Carriage:
    """An event as it was sent to a subscriber."""

    event: Id
    topics: tuple[str, ...]
    predecessors: tuple[Id, ...]
    kept: tuple[Id, ...]
    """What the broker still kept of these topics."""
    minimal: bool
    """The predecessors claim to be the immediate ones."""


@dataclass(frozen=True)
class BrokerEnd:
    """A live broker at the end of a run."""

    topics: tuple[str, ...]
    delivered: Vector
    held_count: int
    kept_count: int


@dataclass(frozen=True)
class SubscriberEnd:
    """A subscriber at the end of a run."""

    topics: tuple[str, ...]
    last: Vector
    homes: tuple[str, ...]
    held_count: int
    static: bool
    """Its topics never changed, and it was there before the first event."""


@dataclass
class Witness:
    """Everything that was seen of one run."""

    facts: dict[Id, Fact] = field(default_factory=dict)
    """In the order in which they were ordered."""
    deliveries: dict[str, list[Id]] = field(default_factory=dict)
    """By broker."""
    upcalls: dict[str, list[Id]] = field(default_factory=dict)
    """By subscriber: what reached the application."""
    gaps: dict[str, int] = field(default_factory=dict)
    """By subscriber: how often it was told of a gap."""
    carriages: list[Carriage] = field(default_factory=list)
    accepted: dict[tuple[str, str], Id] = field(default_factory=dict)
    """By publisher and event: how it was ordered, as far as the publisher knows."""
    refused: list[tuple[str, str, frozenset[int]]] = field(default_factory=list)
    """Flushes as they ended: broker, dead origin, the numbers that still exist."""
    resurrected: list[tuple[str, Id]] = field(default_factory=list)
    """Deliveries of what the same broker had refused before: broker and event."""
    unstable: list[str] = field(default_factory=list)
    """Sentences about stability that went wrong."""
    stability_count: int = 0
    brokers: dict[str, BrokerEnd] = field(default_factory=dict)
    subscribers: dict[str, SubscriberEnd] = field(default_factory=dict)
    ended: bool = False

    def delivered(self, broker: str, event: Id) -> None:
        """A broker delivered an event."""
        self.deliveries.setdefault(broker, []).append(event)
        for name, origin, kept in self.refused:
            if name == broker and origin == event[0] and event[1] not in kept:
                self.resurrected.append((broker, event))

    @cached_property
    def bits(self) -> dict[Id, int]:
        return {one: 1 << number for number, one in enumerate(self.facts)}

    @cached_property
    def lost(self) -> frozenset[Id]:
        """Ordered, and delivered by nobody who is alive at the end."""
        alive = {one for name in self.brokers for one in self.deliveries.get(name, ())}
        return frozenset(one for one in self.facts if one not in alive)

    @cached_property
    def pasts(self) -> dict[Id, int]:
        """For each ordered event, everything that it follows."""
        found: dict[Id, int] = {}
        reached = dict.fromkeys(self.deliveries, (0, 0))
        """By broker: how many deliveries are joined, and to what."""
        had: dict[str, set[str]] = {}
        """By broker: the events among them."""
        for fact in self.facts.values():
            broker = fact.id[0]
            count, mask = reached.get(broker, (0, 0))
            here = had.setdefault(broker, set())
            for one in self.deliveries.get(broker, ())[count : fact.delivered_count]:
                mask |= self.bits[one] | found[one]
                here.add(self.facts[one].event)
            reached[broker] = (fact.delivered_count, mask)
            # An event may be ordered twice, if its publisher gave a broker up that lived: what came
            # next to the same broker follows the order that it gave.
            earlier = (event for event in fact.published if event not in here)
            own = (self.accepted.get((fact.publisher, event)) for event in earlier)
            for known in (*fact.knew, *(one for one in own if one is not None)):
                if known in found:
                    mask |= self.bits[known]
                    if known not in self.lost:
                        mask |= found[known]
            found[fact.id] = mask
        return found

    @cached_property
    def said(self) -> dict[Id, int]:
        """For each ordered event, everything that it says it follows."""
        found: dict[Id, int] = {}
        for fact in self.facts.values():
            mask = 0
            for (origin, number), earlier in self.facts.items():
                for topic, n in earlier.at.items():
                    if position(fact.past, topic, origin) >= n:
                        mask |= self.bits[origin, number]
                        break
            found[fact.id] = mask
        return found

    def named(self, bits: int) -> list[Id]:
        """The events of a mask."""
        return [one for one, bit in self.bits.items() if bits & bit]

    def addressed(self, topics: Sequence[str]) -> int:
        """The mask of all events addressed to one of these topics."""
        wanted = set(topics)
        return sum(self.bits[one.id] for one in self.facts.values() if wanted & set(one.at))


def position(vector: Vector, topic: str, origin: str) -> int:
    return vector.get(topic, {}).get(origin, 0)
