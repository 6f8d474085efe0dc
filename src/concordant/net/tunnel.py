"""The way between a client of transactions, which lives in an application, and its broker.

The client's messages travel in frames of the application's session, and what the broker sends comes
back in them. A channel may break: what was under way is lost then, and the client's link repeats it
(`route.link`). To the client its broker has one name, whichever node it is at.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

from concordant.errors import ConcordantError
from concordant.machine.inputs import Message
from concordant.net.carrier import MemoryCarrier
from concordant.net.session import Frame, Joined, Joins, Parcel
from concordant.net.transactions import MESSAGES
from concordant.wire.messages import Codec

BROKER = "broker"
CODEC = Codec(MESSAGES)


class Tunnel(MemoryCarrier):
    """Carries for one client."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.member = secrets.token_hex(8)
        self.joined: Callable[[Joined], None] = lambda answer: None
        """Told when a node has let us in."""
        self.fail: Callable[[ConcordantError], None] = lambda error: None
        """Told when it is over."""
        self.line: Callable[[Frame], None] = lambda frame: None
        """Sends frames, if there is a channel."""

    def asks(self, request: int, *, resumes: bool = False) -> Joins:
        return Joins(request, self.name, self.member, resumes)

    def send(self, source: str, to: str, messages: tuple[Message, ...]) -> None:
        self.line(Parcel(self.name, CODEC.encode(messages)))

    def arrived(self, parcel: Parcel) -> None:
        super().send(BROKER, self.name, CODEC.decode(parcel.body))
