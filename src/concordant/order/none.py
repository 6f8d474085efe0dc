"""Level `none`: what the dissemination gives, and nothing more.

Events arrive or not, once or twice, in any order, and are delivered as they come. It is the ground
that the other levels are measured against.
"""

from __future__ import annotations

from typing import Any

from concordant.machine.effects import Disseminate, Effect
from concordant.machine.inputs import Received
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.order.client import Client, ClientState, Delivered, foreign
from concordant.order.streams import Mark, Numbered


class NoneClient(Client):
    """A client without any order."""

    compacts = True

    def _new_state(self, topics: dict[str, bool]) -> Any:
        return ClientState(topics)

    def _spread(self, now: Instant, events: list[Event], cause: int, out: list[Effect]) -> None:
        del now
        for event in events:
            message = Numbered((self.name, event.topic), event.seq, event)
            out.append(Disseminate(event.topic, (message,), cause))

    def _receive(self, now: Instant, given: Received, out: list[Effect]) -> None:
        del now
        ready: list[Delivered] = []
        for message in given.messages:
            if type(message) is Mark:
                continue  # for those who want to know what they miss
            if type(message) is not Numbered:
                raise foreign(message)
            if message.event.topic in self._state.topics:
                ready.append(Delivered(message.n, message.event))
        if ready:
            self._deliver(ready, given.cause, out)
