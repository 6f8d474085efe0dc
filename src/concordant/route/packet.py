"""The packet of the overlay without transactions: what `route.link` numbers and repeats."""

from __future__ import annotations

import msgspec

from concordant.route.link import Wire
from concordant.route.messages import Published, Regular
from concordant.route.requests import Asked


class Packet(msgspec.Struct, frozen=True, tag=True):
    """Messages with their numbers, and what was taken of the other side's."""

    session: int
    first: int
    """The number of the first message."""
    messages: tuple[Regular, ...]
    taken: int
    asks: bool = False
    """True: tell me what you took."""


WIRE = Wire(Packet, Regular, Asked, (Published,))
