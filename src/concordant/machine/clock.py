"""The hybrid logical clock: instants that strictly increase and never lie behind what was seen.

It follows the physical clock where it can, and a clock that steps back or another node that is
ahead only pushes it forward. It is told the time and knows no clock of its own.
"""

from __future__ import annotations

import msgspec

from concordant.machine.instant import Instant


class HybridClock(msgspec.Struct):
    """
    >>> clock = HybridClock()
    >>> clock.tick(100), clock.tick(100), clock.tick(90)
    (100, 101, 102)
    >>> clock.observe(500)
    >>> clock.tick(110)
    501
    """

    last: Instant = 0

    def tick(self, now: Instant) -> Instant:
        """The instant of a new event: greater than every one before."""
        self.last = now if now > self.last else self.last + 1
        return self.last

    def observe(self, seen: Instant) -> None:
        """Nothing that comes later may be older than what was seen."""
        if seen > self.last:
            self.last = seen
