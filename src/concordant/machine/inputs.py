"""What a driver gives to a machine: frozen, comparable values that carry batches.

`cause` names the input. The driver chooses it, and every effect of the input repeats it, so that a
run can be told as a story. A batch equals its items one by one, given at the same instant.
"""

from __future__ import annotations

import msgspec

Message = msgspec.Struct
"""One protocol unit between machines: each protocol defines its own, frozen."""

Record = msgspec.Struct
"""One durable unit of a machine's own: each protocol defines its own, frozen."""

Request = msgspec.Struct
"""What an application may ask for; see `machine.requests` for what all protocols understand."""


class Started(msgspec.Struct, frozen=True, gc=False):
    """The first input of every life: what earlier lives made durable; nothing in the first one."""

    records: tuple[Record, ...] = ()
    """What is on the disk, in the order in which it was persisted."""
    taken_count: int = 0
    """How many deliveries the application took in earlier lives. It keeps this count with its own
    results, so a machine that delivers again from there delivers everything exactly once."""
    cause: int = 0


class Received(msgspec.Struct, frozen=True, gc=False):
    """Messages from one machine, in the order in which it sent them."""

    source: str
    messages: tuple[Message, ...]
    cause: int = 0


class TimerFired(msgspec.Struct, frozen=True, gc=False):
    """Timers that the machine had set, and whose instant has come."""

    names: tuple[str, ...]
    cause: int = 0


class Command(msgspec.Struct, frozen=True, gc=False):
    """Requests of the application. One that cannot be met raises, and changes nothing."""

    requests: tuple[Request, ...]
    cause: int = 0


class Listening(msgspec.Struct, frozen=True, gc=False):
    """The dissemination now carries these topics to the machine, as it asked for by `Listen`."""

    topics: tuple[str, ...]
    cause: int = 0


Input = Started | Received | TimerFired | Command | Listening
