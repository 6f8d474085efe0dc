"""The matching index: which of many filters mean an event, without asking all of them.

Every filter is filed once, under what tells it apart best: a constraint that is one value goes into
a table by that value, otherwise a range goes into a structure that finds the ranges around a value,
and a filter without constraints is tried for each event of its topic. What is found there is asked
in full. The index knows filters by a key of its owner and nothing of brokers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from concordant.model.event import Event
from concordant.route.filter import Filter, Interval

_LOOSE_COUNT_MAX = 64
"""Ranges that are tried one by one before they are sorted in."""

_Filed = dict[str, Filter]


class MatchingIndex:
    """
    >>> from concordant.route.filter import filter_of
    >>> index = MatchingIndex()
    >>> index.add("all", filter_of("Quote"))
    >>> index.add("cheap", filter_of("Quote", price=(0, 10)))
    >>> index.matching(Event("Quote", "nyse", 1, 0, {"price": 12}))
    ['all']
    """

    def __init__(self) -> None:
        self._filters: _Filed = {}
        self._points: dict[str, dict[str, dict[Any, _Filed]]] = {}
        """By topic, attribute and value."""
        self._ranges: dict[str, dict[tuple[str, int], Ranges]] = {}
        """By topic, and by attribute with its domain."""
        self._others: dict[str, _Filed] = {}
        self._places: dict[str, _Filed | Ranges] = {}

    def __len__(self) -> int:
        return len(self._filters)

    def add(self, key: str, wanted: Filter) -> None:
        """File a filter; one that was there under the same key goes."""
        self.remove(key)
        self._filters[key] = wanted
        place = self._place(wanted)
        self._places[key] = place
        if isinstance(place, Ranges):
            place.add(key, self._range(wanted)[1])
        else:
            place[key] = wanted

    def remove(self, key: str) -> None:
        """Forget a filter; one that is not there is no error."""
        if self._filters.pop(key, None) is None:
            return
        place = self._places.pop(key)
        if isinstance(place, Ranges):
            place.remove(key)
        else:
            del place[key]

    def matching(self, event: Event) -> list[str]:
        """The keys of all filters that mean the event, in no order."""
        filters = self._filters
        return [key for key in self._candidates(event) if filters[key].matches(event)]

    def _candidates(self, event: Event) -> Iterator[str]:
        read = event.read
        for topic in (event.topic, "") if event.topic else ("",):
            yield from self._others.get(topic, ())
            for name, by_value in self._points.get(topic, {}).items():
                yield from by_value.get(read(name), ())
            for (name, domain), ranges in self._ranges.get(topic, {}).items():
                value = read(name)
                if value is not None and domain == Interval(value).domain and value == value:
                    yield from ranges.around(value)

    def _place(self, wanted: Filter) -> _Filed | Ranges:
        points = [(name, one) for name, one in wanted.constraints if one.point]
        if points:
            by_name = self._points.setdefault(wanted.topic, {})
            places = [by_name.setdefault(n, {}).setdefault(one.low, {}) for n, one in points]
            return min(places, key=len)
        if wanted.constraints:
            name, one = self._range(wanted)
            by_range = self._ranges.setdefault(wanted.topic, {})
            return by_range.setdefault((name, one.domain), Ranges())
        return self._others.setdefault(wanted.topic, {})

    @staticmethod
    def _range(wanted: Filter) -> tuple[str, Interval]:
        """The first range with two ends, or else the first."""
        for name, one in wanted.constraints:
            if one.low is not None and one.high is not None:
                return name, one
        return wanted.constraints[0]


class Ranges:
    """Intervals of one domain by key: which of them lie around a value?

    New ones are kept loose; when there are enough, they are sorted into a layer together with all
    layers that are not larger, so that there are few layers and each interval is sorted rarely.
    """

    def __init__(self) -> None:
        self._intervals: dict[str, Interval] = {}
        self._loose: dict[str, Interval] = {}
        self._layers: list[_Layer] = []
        self._gone: set[str] = set()
        """Removed, but still in a layer."""

    def add(self, key: str, interval: Interval) -> None:
        if key in self._gone:
            self._sort([])  # the same key again: its old interval must not be found
        self._intervals[key] = self._loose[key] = interval
        if len(self._loose) > _LOOSE_COUNT_MAX:
            self._sort(self._large(len(self._loose)))

    def remove(self, key: str) -> None:
        del self._intervals[key]
        if self._loose.pop(key, None) is None:
            self._gone.add(key)
            if len(self._gone) > max(_LOOSE_COUNT_MAX, len(self._intervals)):
                self._sort([])

    def _large(self, size: int) -> list[_Layer]:
        """The layers that stay; the last ones, not larger than what comes, go into it."""
        keep = list(self._layers)
        while keep and len(keep[-1].keys) <= 2 * size:
            size += len(keep.pop().keys)
        return keep

    def _sort(self, keep: list[_Layer]) -> None:
        """Everything that is not in a layer to keep goes into a new one."""
        merged = [key for layer in self._layers[len(keep) :] for key in layer.keys]
        gone, intervals = self._gone, self._intervals
        found = {key: intervals[key] for key in merged if key not in gone}
        gone.difference_update(merged)
        layer = _Layer(found | self._loose)
        self._layers = [*keep, layer] if layer.keys else keep
        self._loose = {}

    def around(self, value: Any) -> Iterator[str]:
        """Keys of the intervals around a value; whether an end belongs to it is not looked at."""
        for key, one in self._loose.items():
            if one.holds(value):
                yield key
        gone = self._gone
        for layer in self._layers:
            for key in layer.around(value):
                if key not in gone:
                    yield key


class _Layer:
    """Intervals sorted by their low end; each middle knows the highest end of its part."""

    def __init__(self, intervals: dict[str, Interval]) -> None:
        unbounded = sorted(k for k, one in intervals.items() if one.low is None)
        bounded = [(one.low, k) for k, one in intervals.items() if one.low is not None]
        bounded.sort()  # one domain, so the ends compare
        self.keys = unbounded + [key for _, key in bounded]
        self._lows: list[Any] = [intervals[key].low for key in self.keys]
        self._highs: list[Any] = [intervals[key].high for key in self.keys]
        self._highest: list[Any] = [None] * len(self.keys)
        if self.keys:
            self._measure(0, len(self.keys))

    def _measure(self, start: int, stop: int) -> Any:
        """The highest end of a part; None is without end."""
        middle = (start + stop) // 2
        ends = [self._highs[middle]]
        if start < middle:
            ends.append(self._measure(start, middle))
        if middle + 1 < stop:
            ends.append(self._measure(middle + 1, stop))
        self._highest[middle] = None if None in ends else max(ends)
        return self._highest[middle]

    def around(self, value: Any) -> Iterator[str]:
        keys, lows, highs, highest = self.keys, self._lows, self._highs, self._highest
        parts = [(0, len(keys))]
        while parts:
            start, stop = parts.pop()
            if start >= stop:
                continue
            middle = (start + stop) // 2
            if highest[middle] is not None and highest[middle] < value:
                continue
            parts.append((start, middle))
            if lows[middle] is None or lows[middle] <= value:
                if highs[middle] is None or highs[middle] >= value:
                    yield keys[middle]
                parts.append((middle + 1, stop))
