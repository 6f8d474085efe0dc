"""Which broker serves which topic: as a table, or every broker every topic.

A table has the brokers of each topic. `Everywhere` is the table in which all brokers serve all
topics, also those that nobody has heard of yet.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

Members = Mapping[str, Sequence[str]]
"""By topic: the brokers that serve it."""


class AllTopics:
    """A container that has every topic."""

    def __contains__(self, topic: object) -> bool:
        return True


class Everywhere(Mapping[str, Sequence[str]]):
    """
    >>> table = Everywhere(["b", "a"])
    >>> table["anything"], "anything" in topics_of(table, "a")
    (('a', 'b'), True)
    """

    def __init__(self, brokers: Iterable[str]) -> None:
        self.brokers = tuple(sorted(set(brokers)))

    def __getitem__(self, topic: str) -> tuple[str, ...]:
        return self.brokers

    def __contains__(self, topic: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())  # which topics there are is not known here

    def __len__(self) -> int:
        return 0


def brokers_of(members: Members) -> tuple[str, ...]:
    """All brokers, sorted.

    >>> brokers_of({"T": ("b", "a"), "U": ("b",)})
    ('a', 'b')
    """
    if isinstance(members, Everywhere):
        return members.brokers
    return tuple(sorted({one for names in members.values() for one in names}))


def topics_of(members: Members, broker: str) -> Container[str]:
    """The topics that a broker serves."""
    if isinstance(members, Everywhere):
        return AllTopics()
    return {topic: True for topic, names in members.items() if broker in names}
