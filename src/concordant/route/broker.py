"""A broker of the overlay as a machine: messages of neighbours and clients in, messages out.

It knows the kinds of messages and leaves every decision to its router. What is not a neighbour is a
client; a client is not believed to be a broker.
"""

from __future__ import annotations

from collections.abc import Sequence

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Effect, Send
from concordant.machine.inputs import Command, Input, Message, Received
from concordant.machine.instant import Instant
from concordant.route.messages import (
    Advertised,
    Hello,
    Published,
    Subscribed,
    Unadvertised,
    Unsubscribed,
)
from concordant.route.router import Router

REGULAR = (Advertised, Unadvertised, Subscribed, Unsubscribed, Published, Hello)


def sends(out: Sequence[tuple[str, Message]], cause: int) -> list[Effect]:
    """Pairs of hop and message as effects, gathered by hop, each hop's in order."""
    ways: dict[str, list[Message]] = {}
    for hop, message in out:
        ways.setdefault(hop, []).append(message)
    return [Send(hop, tuple(messages), cause) for hop, messages in ways.items()]


def route(router: Router, hop: str, message: Message) -> None:
    """Do what a regular message asks for."""
    match message:
        case Published():
            router.publish(hop, message.event)
        case Subscribed():
            router.subscribe(hop, message.id, message.filter)
        case Unsubscribed():
            router.unsubscribe(hop, message.id)
        case Advertised():
            router.advertise(hop, message.id, message.filter)
        case Unadvertised():
            router.unadvertise(hop, message.id)
        case Hello():
            router.out.append((hop, router.known_of(hop)))
        case _:
            raise PeerError(f"{hop} sent a {type(message).__name__}, which a broker does not take")


class Broker:
    """A broker without transactions."""

    def __init__(self, name: str, *, neighbours: tuple[str, ...] = ()) -> None:
        self.name = name
        self.router = Router(name, neighbours)

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        del now
        if isinstance(given, Command):
            raise UsageError("a broker takes no requests", hint="send them to a client")
        if not isinstance(given, Received):
            return []
        for message in given.messages:
            if type(message) not in REGULAR:
                raise PeerError(f"{given.source} sent a broker a {type(message).__name__}")
        router = self.router
        for message in given.messages:
            route(router, given.source, message)
        out, router.out = router.out, []
        return sends(out, given.cause)

    @property
    def held_count(self) -> int:
        return 0

    def snapshot(self) -> bytes:
        return self.router.snapshot()

    def restore(self, data: bytes) -> None:
        self.router.restore(data)
