"""Brokers with transactions as machines: messages and timers in, messages and timers out.

`SharedBroker` takes static and open transactions, `IsolatedBroker` isolated ones. Both do regular
traffic as a plain broker does. An overlay has brokers of one kind: isolated transactions promise
that nobody reads what is not committed, and shared tables show just that.
"""

from __future__ import annotations

from concordant.errors import PeerError, UsageError
from concordant.machine.effects import Effect
from concordant.machine.inputs import Command, Input, Message, Received, TimerFired
from concordant.machine.instant import Instant
from concordant.route.broker import REGULAR, sends
from concordant.transact import answers, contextual, markers
from concordant.transact.isolated import IsolatedRouter
from concordant.transact.messages import (
    BETWEEN_ISOLATED,
    BETWEEN_SHARED,
    FROM_CLIENTS,
    Echo,
    Ended,
    Mark,
    Perform,
    Performed,
    Place,
)
from concordant.transact.options import TransactOptions
from concordant.transact.shared import SharedRouter

NOT_HERE = "the brokers here take isolated transactions only"
_FROM_CLIENTS = frozenset((*REGULAR, *FROM_CLIENTS))


class _Broker:
    """What both have in common."""

    router: SharedRouter | IsolatedRouter
    _between: frozenset[type[Message]]
    """What other brokers may send."""

    def handle(self, now: Instant, given: Input) -> list[Effect]:
        router = self.router
        router.now, router.cause = now, given.cause
        if isinstance(given, Received):
            for message in given.messages:
                self._check(given.source, message)
            for message in given.messages:
                self._take(given.source, message)
        elif isinstance(given, TimerFired):
            for name in given.names:
                router.wake(name)
        elif isinstance(given, Command):
            raise UsageError("a broker takes no requests", hint="send them to a client")
        out, router.out = router.out, []
        effects, router.effects = router.effects, []
        return [*effects, *sends(out, given.cause)]

    def _check(self, source: str, message: Message) -> None:
        """Refuse what a hop has no business to send."""
        broker = self.router.is_broker(source)
        if type(message) not in (self._between if broker else _FROM_CLIENTS):
            who = "a broker" if broker else "a client"
            raise PeerError(f"{source}, {who}, sent a {type(message).__name__}")

    def _take(self, hop: str, message: Message) -> None:
        self.router.take(hop, message)

    @property
    def held_count(self) -> int:
        return self.router.held_count

    def snapshot(self) -> bytes:
        return self.router.snapshot()

    def restore(self, data: bytes) -> None:
        self.router.restore(data)


class SharedBroker(_Broker):
    """A broker for static and open transactions."""

    router: SharedRouter
    _between = frozenset((*REGULAR, *BETWEEN_SHARED))

    def __init__(
        self,
        name: str,
        *,
        neighbours: tuple[str, ...] = (),
        options: TransactOptions | None = None,
    ) -> None:
        self.name = name
        self.router = SharedRouter(name, neighbours, options=options)

    def _take(self, hop: str, message: Message) -> None:
        match message:
            case Place() | Mark():
                markers.place(self.router, hop, message)
            case Echo():
                markers.echo(self.router, hop, message)
            case Perform():
                answers.perform(self.router, hop, message)
            case Performed():
                answers.performed(self.router, hop, message)
            case _:
                super()._take(hop, message)


class IsolatedBroker(_Broker):
    """A broker for isolated transactions; `parent` is the neighbour on the way to the root."""

    router: IsolatedRouter
    _between = frozenset((*REGULAR, *BETWEEN_ISOLATED))

    def __init__(
        self,
        name: str,
        *,
        neighbours: tuple[str, ...] = (),
        parent: str = "",
        options: TransactOptions | None = None,
    ) -> None:
        self.name = name
        self.router = IsolatedRouter(name, neighbours, parent=parent, options=options)

    def _take(self, hop: str, message: Message) -> None:
        match message:
            case Perform():
                contextual.perform(self.router, hop, message)
            case Performed():
                contextual.performed(self.router, hop, message)
            case Place():
                if message.op == markers.FIRST:
                    self.router.out.append((hop, Ended(message.tx, False, NOT_HERE)))
            case _:
                super()._take(hop, message)
