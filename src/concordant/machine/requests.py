"""What every application may ask of a client, whatever its protocol."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from concordant.machine.instant import Instant
from concordant.machine.view import View
from concordant.model.kind import Value


class Publish(msgspec.Struct, frozen=True, gc=False):
    """Publish an event; without a time, the clock of the client gives one."""

    topic: str
    attributes: Mapping[str, Value] = {}
    time: Instant | None = None
    source: str = ""
    """Whose event it is, if a client publishes for others; else its own."""
    id: str = ""
    """What the event is called, if not by source and number."""


class Retire(msgspec.Struct, frozen=True, gc=False):
    """A source that a client published for will not come again: forget its number."""

    source: str


class Subscribe(msgspec.Struct, frozen=True, gc=False):
    """Deliver the events of these topics from now on."""

    topics: tuple[str, ...]


class Unsubscribe(msgspec.Struct, frozen=True, gc=False):
    """Deliver no further event of these topics."""

    topics: tuple[str, ...]


class Install(msgspec.Struct, frozen=True, gc=False):
    """From now on this is the membership; an older view is ignored."""

    view: View
