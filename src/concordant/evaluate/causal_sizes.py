"""How many bytes causal delivery adds to an event, measured on messages as they are encoded.

Real brokers and clients run in steps: everybody publishes, gossips and acknowledges once per step,
messages take one step, and some are lost. Of every message the causal part is what its encoding has
more than the encoding of the same message without it. Three things are compared: all positions of
all topics (vectors per group), what brokers send each other (unstable positions), and what
subscribers get (immediate predecessors, or ages).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

import msgspec

from concordant.causal.broker import Broker
from concordant.causal.messages import Carried, Ordered
from concordant.causal.options import BrokerOptions, ClientOptions, Profile
from concordant.causal.rounds import decode
from concordant.causal.subscriber import Subscriber
from concordant.causal.vector import entries
from concordant.machine.effects import Effect, Send
from concordant.machine.inputs import Command, Message, Received, Started, TimerFired
from concordant.machine.requests import Publish

LOSS = 0.05
STEP_US = 1_000_000


@dataclass(frozen=True)
class Shape:
    """Brokers, topics, topics of each broker, and events per broker and step."""

    brokers: int
    topics: int
    topics_per_broker: int
    rate: float


TABLE = (
    Shape(4, 2, 2, 0.5),
    Shape(8, 4, 2, 0.5),
    Shape(16, 8, 3, 0.5),
    Shape(32, 8, 3, 0.5),
    Shape(16, 8, 3, 2.0),
)


@dataclass
class Mean:
    """Entries and bytes, in the mean."""

    count: int = 0
    entry_sum: int = 0
    entry_max: int = 0
    byte_sum: int = 0

    def add(self, entry_count: int, byte_count: int) -> None:
        self.count += 1
        self.entry_sum += entry_count
        self.entry_max = max(self.entry_max, entry_count)
        self.byte_sum += byte_count

    @property
    def entries(self) -> float:
        return self.entry_sum / max(1, self.count)

    @property
    def bytes(self) -> float:
        return self.byte_sum / max(1, self.count)


@dataclass
class Sizes:
    """The causal part of messages."""

    whole: Mean = field(default_factory=Mean)
    """Full vectors per group."""
    between: Mean = field(default_factory=Mean)
    """Between brokers: what is not stable."""
    last_hop: Mean = field(default_factory=Mean)
    """From a broker to a subscriber."""


def measure(shape: Shape, profile: Profile = "local", *, steps: int = 60, seed: int = 1) -> Sizes:
    """Run brokers with one subscriber each, and look at what they send."""
    return _Rig(shape, profile, seed).run(steps)


class _Rig:
    def __init__(self, shape: Shape, profile: Profile, seed: int) -> None:
        self._rng = Random(f"{seed}/sizes")
        self._shape = shape
        self._found = Sizes()
        self._now = 0
        self._moving: list[tuple[str, str, Message]] = []
        names = [f"b{number}" for number in range(1, shape.brokers + 1)]
        topics = [f"T{number}" for number in range(1, shape.topics + 1)]
        serves = {
            name: [topics[(number + k) % len(topics)] for k in range(shape.topics_per_broker)]
            for number, name in enumerate(names)
        }
        members = {one: [name for name in names if one in serves[name]] for one in topics}
        broker_options = BrokerOptions(
            profile=profile, seed=seed, tick_us=STEP_US, resend_us=2 * STEP_US
        )
        client_options = ClientOptions(
            acknowledge_us=STEP_US,
            repeat_us=3 * STEP_US,
            silence_us=10**12,
            flight_count_max=1,  # as in the papers' model
        )
        self._serves = serves
        self._publishers: dict[str, str] = {}
        """By name: the broker that it publishes through."""
        self._machines: dict[str, Broker | Subscriber] = {}
        for name in names:
            self._machines[name] = Broker(name, members=members, options=broker_options)
            self._machines[f"c{name}"] = Subscriber(
                f"c{name}",
                members=members,
                topics=serves[name],
                prefers=(name,),
                profile=profile,
                options=client_options,
            )
            # A publication waits for the answer to the one before, there and back: two steps.
            for number in range(max(1, round(2 * shape.rate))):
                self._publishers[f"p{number}{name}"] = name
        for publisher, name in self._publishers.items():
            self._machines[publisher] = Subscriber(
                publisher,
                members=members,
                publishes=serves[name],
                prefers=(name,),
                profile=profile,
                options=client_options,
            )

    def run(self, steps: int) -> Sizes:
        for name, machine in self._machines.items():
            self._sent(name, machine.handle(self._now, Started()))
        for _ in range(steps):
            self._now += STEP_US
            arriving, self._moving = self._moving, []
            for source, to, message in arriving:
                if self._rng.random() >= LOSS:
                    machine = self._machines[to]
                    self._sent(to, machine.handle(self._now, Received(source, (message,))))
            for name, machine in self._machines.items():
                self._sent(name, machine.handle(self._now, TimerFired(("tick",))))
            for name, broker in self._publishers.items():
                if self._rng.random() < self._shape.rate / max(1, round(2 * self._shape.rate)):
                    request = Command((Publish(self._rng.choice(self._serves[broker])),))
                    self._sent(name, self._machines[name].handle(self._now, request))
        return self._found

    def _sent(self, source: str, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                for message in effect.messages:
                    self._moving.append((source, effect.to, message))
                    self._look(source, message)

    def _look(self, source: str, message: Message) -> None:
        broker = self._machines[source]
        if not isinstance(broker, Broker):
            return
        if isinstance(message, Ordered) and message.origin == source:
            self._found.between.add(
                sum(1 for _ in entries(message.past)),
                _more(message, msgspec.structs.replace(message, past={})),
            )
            whole = msgspec.structs.replace(message, past=broker.state.delivered)
            self._found.whole.add(
                sum(1 for _ in entries(broker.state.delivered)), _more(whole, message, past={})
            )
        elif isinstance(message, Carried):
            bare = msgspec.structs.replace(message, predecessors=(), ages=b"")
            count = len(message.predecessors) + len(decode(message.ages, broker.brokers))
            self._found.last_hop.add(count, _more(message, bare))


def _more(message: Message, bare: Message, **changes: object) -> int:
    """The bytes by which an encoded message is longer than a bare one."""
    bare = msgspec.structs.replace(bare, **changes)
    return len(msgspec.msgpack.encode(message)) - len(msgspec.msgpack.encode(bare))
