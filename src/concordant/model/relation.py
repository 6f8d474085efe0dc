"""Relations: what a subscription delivers.

A relation is an ordered tuple of events that satisfied one conjunction. Its identity is intrinsic
(subscription, conjunction, partition value, ordinal), so a sink can recognise it on replay.
"""

from __future__ import annotations

import msgspec

from concordant.model.event import Event, OrderKey
from concordant.model.kind import Value

_INFINITY = float("inf")


class Relation(msgspec.Struct, frozen=True):
    """Events that together answered a subscription, in slot order."""

    subscription: str
    conjunction: int
    """Number of the conjunction in the text, from 1."""
    key: tuple[Value, ...]
    """The partition value; empty if the subscription is not partitioned."""
    ordinal: int
    """Counts per (subscription, conjunction, partition value), from 1."""
    position: int
    """Counts per (subscription, partition value), from 1."""
    events: tuple[Event, ...]
    at: OrderKey
    """The order key of the event that completed the relation."""

    @property
    def event_ids(self) -> tuple[str, ...]:
        return tuple(event.id for event in self.events)

    @property
    def key_text(self) -> str:
        """The partition value as a JSON list, or nothing if there is none."""
        # JSON has no infinity, and null is a partition of its own.
        shown = [str(v) if v in (_INFINITY, -_INFINITY) else v for v in self.key]
        return msgspec.json.encode(shown).decode() if shown else ""

    @property
    def id(self) -> str:
        """The intrinsic identity as text."""
        return f"{self.subscription}/{self.conjunction}{self.key_text}/{self.ordinal}"
