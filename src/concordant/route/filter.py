"""Filters: one interval per attribute, and how two filters lie to each other.

A filter says which events are meant: those of a topic (or of any) whose attributes lie in the
filter's intervals. An attribute that it does not name may have any value, or none. Two filters
overlap if some event can satisfy both, which has to hold for *every* attribute they share (the
paper's definition 1 asks for one only); one covers another if whatever satisfies the other
satisfies it. Strings are compared by code points, so a prefix is an interval too. Numbers are taken
as dense: between 1 and 2 there is always room, so for integers `overlaps` may say yes where nothing
fits. That only costs a message. The module knows no table and no broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import msgspec

from concordant.errors import UsageError
from concordant.model.event import Event
from concordant.model.expression import dotted, quote_string, quoted

Bound = bool | int | float | str
"""What an interval can end at."""

CONSTRAINT_COUNT_MAX = 64
"""Attributes that one filter may name: enough for any schema, and a bound for strangers."""

_BOOL, _NUMBER, _STRING = range(3)
_DOMAINS = {bool: _BOOL, int: _NUMBER, float: _NUMBER, str: _STRING}


class Interval(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Values of one kind from `low` to `high`; an end that is None is open to that side.

    >>> between(1, 5).holds(5), between(1, 5, high_open=True).holds(5), equal("a").holds("a")
    (True, False, True)
    """

    low: Bound | None = None
    high: Bound | None = None
    low_open: bool = False
    """The lowest value itself does not belong to it."""
    high_open: bool = False

    def __post_init__(self) -> None:
        low: Any = self.low
        high: Any = self.high
        if low is None and high is None:
            raise ValueError("an interval needs at least one end")
        if low != low or high != high:
            raise ValueError("nothing compares with NaN")
        if low is None or high is None:
            return
        if _DOMAINS[type(low)] != _DOMAINS[type(high)]:
            raise ValueError(f"{low!r} and {high!r} do not compare")
        if low > high or (low == high and (self.low_open or self.high_open)):
            raise ValueError(f"nothing lies between {low!r} and {high!r}")

    @property
    def domain(self) -> int:
        """Booleans, numbers and strings never compare with each other."""
        return _DOMAINS[type(self.high if self.low is None else self.low)]

    @property
    def point(self) -> bool:
        return self.low is not None and self.low == self.high

    def holds(self, value: Any) -> bool:
        """Does a value lie in it?"""
        if value is None or _DOMAINS.get(type(value)) != self.domain or value != value:
            return False
        low: Any = self.low
        high: Any = self.high
        if low is not None and (value < low or (self.low_open and value == low)):
            return False
        return high is None or not (value > high or (self.high_open and value == high))

    def overlaps(self, other: Interval) -> bool:
        """Is there a value in both?"""
        return (
            self.domain == other.domain
            and not self._ends_before(other)
            and not other._ends_before(self)
        )

    def _ends_before(self, other: Interval) -> bool:
        high: Any = self.high
        low: Any = other.low
        if high is None or low is None:
            return False
        return bool(high < low or (high == low and (self.high_open or other.low_open)))

    def covers(self, other: Interval) -> bool:
        """Does every value of the other lie in this one?"""
        if self.domain != other.domain:
            return False
        low: Any = self.low
        high: Any = self.high
        if low is not None:
            its: Any = other.low
            if its is None or its < low or (its == low and self.low_open and not other.low_open):
                return False
        if high is not None:
            its = other.high
            if (
                its is None
                or its > high
                or (its == high and self.high_open and not other.high_open)
            ):
                return False
        return True

    def __str__(self) -> str:
        if self.point:
            return f"= {_shown(self.low)}"
        ends = []
        if self.low is not None:
            ends.append(f"{'>' if self.low_open else '>='} {_shown(self.low)}")
        if self.high is not None:
            ends.append(f"{'<' if self.high_open else '<='} {_shown(self.high)}")
        return " and ".join(ends)


def _shown(value: Bound | None) -> str:
    if isinstance(value, str):
        return quote_string(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


class Filter(msgspec.Struct, frozen=True, array_like=True):
    """Which events are meant.

    >>> str(filter_of("Instance", process="p", number=(1, 5)))
    'Instance with number >= 1 and <= 5, process = "p"'
    """

    topic: str = ""
    """Empty: any topic."""
    constraints: tuple[tuple[str, Interval], ...] = ()
    """By attribute, in the order of their names."""

    def __post_init__(self) -> None:
        if len(self.constraints) < 2:
            return
        if len(self.constraints) > CONSTRAINT_COUNT_MAX:
            raise ValueError(f"a filter may name {CONSTRAINT_COUNT_MAX} attributes")
        for (one, _), (other, _) in pairwise(self.constraints):
            if one >= other:
                raise ValueError("attributes are named once each, in the order of their names")

    def matches(self, event: Event) -> bool:
        """Is the event meant? (The paper: the subscription's filter covers the point filter.)"""
        if self.topic and self.topic != event.topic:
            return False
        read = event.read
        for name, interval in self.constraints:  # noqa: SIM110 - `all` costs a generator
            if not interval.holds(read(name)):
                return False
        return True

    def overlaps(self, other: Filter) -> bool:
        """Can some event be meant by both?"""
        if self.topic and other.topic and self.topic != other.topic:
            return False
        if not self.constraints or not other.constraints:
            return True
        theirs = dict(other.constraints)
        for name, interval in self.constraints:
            if name in theirs and not interval.overlaps(theirs[name]):
                return False
        return True

    def covers(self, other: Filter) -> bool:
        """Is every event that the other means meant by this one?"""
        if self.topic and self.topic != other.topic:
            return False
        theirs = dict(other.constraints)
        return all(
            name in theirs and interval.covers(theirs[name]) for name, interval in self.constraints
        )

    def __str__(self) -> str:
        parts = ", ".join(f"{dotted(name)} {interval}" for name, interval in self.constraints)
        topic = quoted(self.topic) if self.topic else "any topic"
        return f"{topic} with {parts}" if parts else topic


def between(
    low: Bound | None, high: Bound | None, *, low_open: bool = False, high_open: bool = False
) -> Interval:
    """An interval; None is no end."""
    try:
        return Interval(low, high, low_open, high_open)
    except ValueError as error:
        raise UsageError(str(error), hint="give ends of one kind, the lower one first") from None


def equal(value: Bound) -> Interval:
    """One value."""
    return between(value, value)


def prefix(text: str) -> Interval:
    """All strings that begin with a text.

    >>> prefix("ab").holds("abc"), prefix("ab").holds("ac"), prefix("").holds("anything")
    (True, False, True)
    """
    return Interval(text, _after(text), high_open=True)


def _after(text: str) -> str | None:
    """The least string that is greater than all with this prefix; None if there is none."""
    while text:
        code = ord(text[-1]) + 1
        if 0xD800 <= code <= 0xDFFF:  # halves of pairs are no characters
            code = 0xE000
        if code <= 0x10FFFF:
            return text[:-1] + chr(code)
        text = text[:-1]
    return None


def filter_of(topic: str = "", constraints: Mapping[str, Any] | None = None, **more: Any) -> Filter:
    """A filter from values (equal), pairs (from, to) and intervals, by attribute.

    >>> filter_of("Instance", process="p").covers(filter_of("Instance", process="p", x=1))
    True
    """
    found: dict[str, Interval] = {}
    for name, wanted in {**(constraints or {}), **more}.items():
        if isinstance(wanted, Interval):
            found[name] = wanted
        elif isinstance(wanted, tuple):
            found[name] = between(*wanted)
        else:
            found[name] = equal(wanted)
    try:
        return Filter(topic, tuple(sorted(found.items())))
    except ValueError as error:
        raise UsageError(str(error), hint="split it into several subscriptions") from None
