"""How often somebody who lacks something is sent it again.

What was sent may still be on its way, and on a slow link sending it again makes it slower. So an
answer is given at once, and repeated at ever longer intervals as long as nothing seems to arrive.
"""

from __future__ import annotations

import msgspec

from concordant.machine.instant import Duration, Instant


class Pace(msgspec.Struct):
    """
    >>> pace = Pace()
    >>> [pace.due(now, 0, first_us=10, longest_us=40) for now in (0, 5, 10, 20, 30, 70)]
    [True, False, True, True, False, True]
    >>> pace.due(75, 1, first_us=10, longest_us=40)
    True
    """

    reached: int = -1
    """How far the other one was."""
    wait_us: Duration = 0
    again_at: Instant = 0

    def due(self, now: Instant, reached: int, *, first_us: Duration, longest_us: Duration) -> bool:
        """Is it time to answer somebody who has come so far?"""
        if reached > self.reached:
            self.reached, self.wait_us, self.again_at = reached, first_us, now + first_us
            return True
        if now < self.again_at:
            return False
        self.again_at = now + self.wait_us
        self.wait_us = min(2 * self.wait_us, longest_us)
        return True
