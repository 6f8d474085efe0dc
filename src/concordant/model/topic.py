"""Topics: named streams with a schema.

Topic order (the order of slots in a relation) is by code points of the names unless a deployment
gives another one; it is fixed for good and has nothing to do with the ranking of sequencers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from concordant.errors import UsageError
from concordant.model.kind import RESERVED, Kind


class Topic(msgspec.Struct, frozen=True):
    """A named stream of events with the same attributes (nested ones by dotted names)."""

    name: str
    attributes: Mapping[str, Kind] = {}

    def kind(self, attribute: str) -> Kind | None:
        """The kind of an attribute or reserved name, or None if the topic has no such attribute."""
        return RESERVED.get(attribute) or self.attributes.get(attribute)


Schemas = Mapping[str, Topic]
"""The known topics by name."""


def schemas(topics: Iterable[Topic]) -> dict[str, Topic]:
    """Topics by name, in topic order."""
    return {topic.name: topic for topic in sorted(topics, key=lambda topic: topic.name)}


class TopicOrder(msgspec.Struct, frozen=True):
    """The fixed order of topics: the given names first, all others after them by code points."""

    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(set(self.names)) != len(self.names):
            raise UsageError("the topic order names a topic twice", hint="name each topic once")

    def key(self, topic: str) -> tuple[int, str]:
        """Sort key of a topic's name."""
        try:
            return (self.names.index(topic), topic)
        except ValueError:
            return (len(self.names), topic)
