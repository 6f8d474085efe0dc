"""The client that every node has at its own broker, so that what is committed enters the order.

A resident advertises everything, wherever it is. So a subscription to everything is at all brokers,
whoever advertises what and when; one resident has it (`enters`), and the driver hands what it
delivers to the node's feeds, from which subscribers of every order level read. The events of a
transaction come to it in the order of its operations, when it commits, each once.

It begins no transaction and takes part in none. What a feed would refuse, because its topic is not
declared, it does not deliver.
"""

from __future__ import annotations

from typing import Any

from concordant.machine.effects import Effect, Note
from concordant.machine.inputs import Message
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.route.filter import filter_of
from concordant.route.messages import Welcome
from concordant.route.requests import Advertise, Subscribe
from concordant.transact.client import TransactClient
from concordant.transact.messages import Perform, Performed, Planned, Refuse

EVERYTHING = "everything"
"""What a resident calls its advertisement and its subscription."""


class Resident(TransactClient):
    """A node's own client."""

    def __init__(
        self, name: str, *, broker: str, enters: bool = False, topics: frozenset[str] | None = None
    ) -> None:
        """`topics` are those that the feeds take; None: all."""
        super().__init__(name, broker=broker)
        self._enters = enters
        self._topics = topics

    def _receive(self, now: Instant, message: Message, cause: int, out: list[Effect]) -> None:
        match message:
            case Perform():
                self._send(Performed(message.tx, message.op, False), cause, out)
            case Planned():
                self._send(Refuse(message.tx, f"refused: {self.name} is a node"), cause, out)
            case _:
                super()._receive(now, message, cause, out)
        if isinstance(message, Welcome):
            self._move_in(cause, out)

    def _move_in(self, cause: int, out: list[Effect]) -> None:
        if EVERYTHING not in self.advertisements:
            self._send(self.change_of(Advertise(EVERYTHING, filter_of())), cause, out)
        if self._enters and EVERYTHING not in self.subscriptions:
            self._send(self.change_of(Subscribe(EVERYTHING, filter_of())), cause, out)

    def _deliver(self, event: Event, cause: int, out: list[Effect]) -> None:
        if self._topics is None or event.topic in self._topics:
            super()._deliver(event, cause, out)
        else:
            text = f"{event.id} does not enter: the topic {event.topic!r} is not declared"
            out.append(Note(text, cause=cause))

    def _tell(self, *about: Any) -> None:
        """Nobody here asks for outcomes: what it delivers are events only."""


def is_everywhere(subscriptions: dict[str, Any], resident: str) -> bool:
    """Has the subscription of the resident that enters come to the broker with this table?"""
    return any(id.startswith(f"{resident}/{EVERYTHING}#") for id in subscriptions)
