"""Membership views: numbered lists of who takes part.

A view is a value. Who decides on views, and when, is another's matter; a machine only prefers the
one with the greater number.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class View(msgspec.Struct, frozen=True):
    """Members by name, each once and sorted, so that equal memberships are equal values.

    >>> View.of(1, ["b", "a", "b"])
    View(number=1, members=('a', 'b'))
    """

    number: int
    members: tuple[str, ...] = ()

    @classmethod
    def of(cls, number: int, members: Iterable[str]) -> View:
        return cls(number, tuple(sorted(set(members))))

    def newer_than(self, other: View) -> bool:
        return self.number > other.number
