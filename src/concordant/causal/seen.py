"""Seen: which events of a source were there before, also when an earlier one comes after a later.

A publisher that gives a broker up has everything ordered again that it was not told of. Most of it
is a repetition. But an event may have died with the broker, and a later one of the same publisher
not; then the first one comes late, and the greatest number alone would pass it over. So the numbers
are kept as runs, as far back as a publisher can have events under way; what is older was there.
"""

from __future__ import annotations

from bisect import bisect_right

import msgspec

REACH = 1_000
"""A publisher has at most so many events under way (`ClientOptions.flight_count_max`)."""


class Seen(msgspec.Struct):
    """Numbers of events by source.

    >>> seen = Seen()
    >>> for seq in (1, 2, 4):
    ...     seen.add("s", seq)
    >>> [seq for seq in range(1, 6) if ("s", seq) not in seen]
    [3, 5]
    """

    runs: dict[str, list[int]] = {}
    """Where runs of numbers begin and end, ascending: begin, end, begin, end; the end is the first
    number that is not in the run."""

    def __contains__(self, one: tuple[str, int]) -> bool:
        source, seq = one
        runs = self.runs.get(source)
        return runs is not None and (seq < runs[-1] - REACH or bool(bisect_right(runs, seq) & 1))

    def add(self, source: str, seq: int) -> None:
        runs = self.runs.get(source)
        if runs is None:
            self.runs[source] = [seq, seq + 1]
        elif seq == runs[-1]:
            runs[-1] = seq + 1
        elif seq > runs[-1]:
            runs += (seq, seq + 1)
            while runs[1] <= seq - REACH:
                del runs[:2]
        elif (source, seq) not in self:
            self._fill(runs, seq)

    def _fill(self, runs: list[int], seq: int) -> None:
        """A number between two runs, or before the first: it may join its neighbours."""
        place = bisect_right(runs, seq)
        runs[place:place] = (seq, seq + 1)
        if runs[place + 1] == runs[place + 2]:
            del runs[place + 1 : place + 3]
        if place and runs[place - 1] == seq:
            del runs[place - 1 : place + 1]
