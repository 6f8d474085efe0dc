"""What applications may ask of a causal client beyond what every client understands."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from concordant.machine.instant import Instant
from concordant.model.kind import Value


class Address(msgspec.Struct, frozen=True, gc=False):
    """Publish one event to several topics; who holds more than one of them gets it once."""

    topics: tuple[str, ...]
    attributes: Mapping[str, Value] = {}
    time: Instant | None = None
    source: str = ""
    """Whose event it is, if a client publishes for others; else its own."""
    id: str = ""
    """What the event is called, if not by source and number."""


class Migrate(msgspec.Struct, frozen=True, gc=False):
    """From now on, be served by these brokers."""

    homes: tuple[str, ...]
