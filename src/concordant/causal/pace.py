"""How often somebody who lacks an event is sent it again.

What was sent may still be on its way, and on a slow link sending it again makes it slower. So each
event is sent at once, and repeated at ever longer intervals as long as it does not arrive.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from concordant.causal.messages import Id
from concordant.machine.instant import Duration, Instant


class Sent(msgspec.Struct, array_like=True):
    """When an event is to be sent again, and how long to wait after that."""

    again_at: Instant
    wait_us: Duration


class Pace(msgspec.Struct):
    """What one receiver was sent and has not shown to have.

    >>> pace = Pace()
    >>> pace.sent(("a", 1), 0, wait_us=10)
    >>> [pace.due([("a", 1)], now, wait_us=10, longest_us=40) for now in (5, 10, 25, 30)]
    [[], [('a', 1)], [], [('a', 1)]]
    >>> pace.due([("a", 2)], 31, wait_us=10, longest_us=40)
    [('a', 2)]
    """

    events: dict[Id, Sent] = {}

    def sent(self, event: Id, now: Instant, *, wait_us: Duration) -> None:
        """It was sent for the first time."""
        self.events[event] = Sent(now + wait_us, 2 * wait_us)

    def due(
        self, lacking: Iterable[Id], now: Instant, *, wait_us: Duration, longest_us: Duration
    ) -> list[Id]:
        """Of these, which are all that is lacking, those to be sent now; others are forgotten."""
        found: list[Id] = []
        kept: dict[Id, Sent] = {}
        for event in lacking:
            known = self.events.get(event)
            if known is None:
                known = Sent(now + wait_us, 2 * wait_us)
                found.append(event)
            elif now >= known.again_at:
                known = Sent(now + known.wait_us, min(2 * known.wait_us, longest_us))
                found.append(event)
            kept[event] = known
        self.events = kept
        return found
