"""What a machine wants done: frozen, comparable values that carry batches.

A driver carries them out in their order. Two rules bind it. What `Persist` names is durable before
any later effect leaves, of this input or of a later one, and a write that fails ends the machine's
life. And a topic that was asked for by `Listen` is confirmed by the input `Listening`.
"""

from __future__ import annotations

import msgspec

from concordant.machine.inputs import Message, Record
from concordant.machine.instant import Instant
from concordant.model.event import Event
from concordant.model.history import Step
from concordant.model.kind import Value


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """What an application gets: an event, or the events of a relation, with a place."""

    events: tuple[Event, ...]
    position: int
    """Counts the deliveries of a machine for one subscription, over all its lives, from 1."""
    in_order: bool = True
    """False: out of the promised order, and said so."""
    subscription: str = ""
    conjunction: int = 0
    key: tuple[Value, ...] = ()


class Send(msgspec.Struct, frozen=True, gc=False):
    """To one machine. Unless a link promises more, messages may be lost, doubled or overtaken."""

    to: str
    messages: tuple[Message, ...]
    cause: int = 0


class SendAll(msgspec.Struct, frozen=True, gc=False):
    """The same to several machines, to each as `Send` would: the messages are made bytes once."""

    to: tuple[str, ...]
    messages: tuple[Message, ...]
    cause: int = 0


class Disseminate(msgspec.Struct, frozen=True, gc=False):
    """To every machine that listens to the topic, with no promise of order."""

    topic: str
    messages: tuple[Message, ...]
    cause: int = 0


class Listen(msgspec.Struct, frozen=True, gc=False):
    """Let the dissemination carry these topics to this machine."""

    topics: tuple[str, ...]
    cause: int = 0


class Ignore(msgspec.Struct, frozen=True, gc=False):
    """Let the dissemination no longer carry these topics to this machine."""

    topics: tuple[str, ...]
    cause: int = 0


class SetTimer(msgspec.Struct, frozen=True, gc=False):
    """Wake the machine at an instant of its clock; a timer of the same name is replaced."""

    name: str
    at: Instant
    cause: int = 0


class CancelTimer(msgspec.Struct, frozen=True, gc=False):
    """Forget a timer; one that is not set is no error."""

    name: str
    cause: int = 0


class Persist(msgspec.Struct, frozen=True, gc=False):
    """Append to the machine's durable log."""

    records: tuple[Record, ...]
    cause: int = 0
    replaces: bool = False
    """True: these take the place of everything persisted before (a snapshot)."""


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """To the application, in this order."""

    deliveries: tuple[Delivery, ...]
    cause: int = 0


class Note(msgspec.Struct, frozen=True, gc=False):
    """What a history, a transcript or a metric wants to know; it changes nothing.

    With a `step`, it is a row of the history: what was published, which topics are subscribed now.
    """

    text: str = ""
    step: Step | None = None
    topics: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    cause: int = 0


Effect = (
    Send
    | SendAll
    | Disseminate
    | Listen
    | Ignore
    | SetTimer
    | CancelTimer
    | Persist
    | Deliver
    | Note
)
