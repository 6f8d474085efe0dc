"""Concordant: ordered publish/subscribe and event correlation.

Two subscribers with the same question get the same answers in the same order. This module holds
the public names and nothing else; importing it loads none of them, starts no JVM and no event loop.

To correlate: `from concordant.local import correlate` (files and tables on one machine).
To publish and subscribe: `Bus` (in memory, or with a cluster of nodes).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concordant.bus import Bus
    from concordant.errors import (
        ConcordantError,
        InvariantViolation,
        PeerError,
        UsageError,
    )
    from concordant.files import read_events, write_events
    from concordant.language import emit, parse, subscription, topic
    from concordant.model.event import Event
    from concordant.model.relation import Relation
    from concordant.model.subscription import Subscription
    from concordant.model.topic import Topic

_HOMES = {
    "Bus": "concordant.bus",
    "ConcordantError": "concordant.errors",
    "Event": "concordant.model.event",
    "InvariantViolation": "concordant.errors",
    "PeerError": "concordant.errors",
    "Relation": "concordant.model.relation",
    "Subscription": "concordant.model.subscription",
    "Topic": "concordant.model.topic",
    "UsageError": "concordant.errors",
    "emit": "concordant.language",
    "parse": "concordant.language",
    "read_events": "concordant.files",
    "subscription": "concordant.language",
    "topic": "concordant.language",
    "write_events": "concordant.files",
}
"""Where each public name lives; it is imported on first use (PEP 562)."""

__all__ = [
    "Bus",
    "ConcordantError",
    "Event",
    "InvariantViolation",
    "PeerError",
    "Relation",
    "Subscription",
    "Topic",
    "UsageError",
    "emit",
    "parse",
    "read_events",
    "subscription",
    "topic",
    "write_events",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'concordant' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
