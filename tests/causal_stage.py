"""A stage for causal delivery: brokers and clients whose messages wait until somebody lets them go.

Counterexamples need one message late and another lost, exactly. Nothing happens on a stage by
itself: `flow` carries what is not held, `tick` lets time pass for one place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from concordant.causal.broker import Broker
from concordant.causal.messages import Attached, Carried, Ordered, Submit
from concordant.causal.options import BrokerOptions, ClientOptions, Profile
from concordant.causal.requests import Address
from concordant.causal.subscriber import Subscriber
from concordant.machine.detector import Suspected
from concordant.machine.effects import Deliver, Effect, Persist, Send, SetTimer
from concordant.machine.inputs import (
    Command,
    Input,
    Message,
    Received,
    Record,
    Request,
    Started,
    TimerFired,
)

Wire = tuple[str, str, Message]
Hold = Callable[[str, str, Message], bool]


class Stage:
    """Machines, and the messages between them."""

    def __init__(
        self,
        members: Mapping[str, Sequence[str]],
        *,
        profile: Profile = "local",
        broker_options: BrokerOptions | None = None,
    ) -> None:
        self.members = members
        self.profile: Profile = profile
        self.now = 0
        self.wires: list[Wire] = []
        self.delivered: dict[str, list[str]] = {}
        """By client: ids of events; the empty text for a gap."""
        self.records: dict[str, list[Record]] = {}
        self.machines: dict[str, Broker | Subscriber] = {}
        options = broker_options or BrokerOptions(profile=profile, resend_us=40_000, lease_us=10**9)
        for name in sorted({one for names in members.values() for one in names}):
            self.machines[name] = Broker(name, members=members, options=options)
            self.give(name, Started())

    def client(self, name: str, *topics: str, at: Sequence[str] = ()) -> Subscriber:
        """A client that holds these topics and may publish to all."""
        client = Subscriber(
            name,
            members=self.members,
            topics=topics,
            publishes=tuple(self.members),
            prefers=at,
            profile=self.profile,
            options=ClientOptions(repeat_us=50_000, silence_us=10**12),
        )
        self.machines[name] = client
        self.give(name, Started())
        return client

    def broker(self, name: str) -> Broker:
        machine = self.machines[name]
        assert isinstance(machine, Broker)
        return machine

    def give(self, name: str, given: Input) -> list[Effect]:
        effects = self.machines[name].handle(self.now, given)
        for effect in effects:
            if isinstance(effect, Send):
                self.wires += [(name, effect.to, one) for one in effect.messages]
            elif isinstance(effect, Deliver):
                found = self.delivered.setdefault(name, [])
                for one in effect.deliveries:
                    found += [event.id for event in one.events] or [""]
            elif isinstance(effect, Persist):
                self.records.setdefault(name, []).extend(effect.records)
            else:
                assert isinstance(effect, SetTimer) or effect
        return effects

    def ask(self, name: str, *requests: Request) -> None:
        self.give(name, Command(requests))

    def publish(self, name: str, *topics: str) -> str:
        """Publish and let the broker order it; the event's id."""
        self.ask(name, Address(topics))
        client = self.machines[name]
        assert isinstance(client, Subscriber)
        return f"{name}:{client.seq_of(name)}"

    def tick(self, *names: str) -> None:
        self.now += 100_000
        for name in names:
            self.give(name, TimerFired(("tick",)))

    def suspect(self, who: str, *by: str) -> None:
        for name in by:
            self.give(name, Received(f"{name}/detector", (Suspected((who,)),)))

    def flow(self, hold: Hold = lambda source, to, message: False) -> None:
        """Carry messages, the oldest first, until all that are left are held."""
        moved = True
        while moved:
            moved = False
            for wire in list(self.wires):
                if not hold(*wire):
                    self.wires.remove(wire)
                    source, to, message = wire
                    if to in self.machines:
                        self.give(to, Received(source, (message,)))
                    moved = True

    def lose(self, lost: Hold) -> None:
        self.wires = [wire for wire in self.wires if not lost(*wire)]

    def kill(self, name: str) -> None:
        """It is gone, with all that it has sent and that was not carried yet."""
        del self.machines[name]
        self.lose(lambda source, to, message: name in (source, to))

    def settle(self, *, rounds: int = 12) -> None:
        """Let everything happen that is owed."""
        for _ in range(rounds):
            self.tick(*self.machines)
            self.flow()


def event(message: Message, *ids: str) -> bool:
    """Does the message carry one of these events?"""
    if isinstance(message, Attached):
        return any(event(one, *ids) for one in message.catchup)
    return isinstance(message, Ordered | Carried | Submit) and message.event.id in ids


def between(source: str, to: str, *ids: str) -> Hold:
    """Messages on one way that carry one of these events."""
    return lambda one, other, message: one == source and other == to and event(message, *ids)
