"""The deliveries of one subscription on their way to its application: numbered, bounded, kept.

A delivery waits here until the application says that it took it. Few are under way at a time, so
that a slow application fills no socket. When too many wait, or one waits too long, the outlet says
so; what is done about it (cut the application off, throttle the publishers) is the node's matter.
It knows numbers and instants, no sockets and no clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from concordant.errors import PeerError
from concordant.machine.effects import Delivery
from concordant.machine.instant import Duration, Instant

UNDER_WAY_COUNT_MAX = 4_000
"""Deliveries sent and not taken yet."""
FRAME_COUNT_MAX = 1_000
"""Deliveries in one frame."""


class Outlet:
    """What waits for one application."""

    def __init__(self, *, taken: int, buffer_count_max: int, lag_us_max: Duration) -> None:
        self.taken = taken
        self._sent = taken
        self._waiting: deque[Delivery] = deque()
        """The first has the number `taken + 1`."""
        self._since: deque[Instant] = deque()
        self.buffer_count_max = buffer_count_max
        self.lag_us_max = lag_us_max

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, deliveries: Sequence[Delivery], now: Instant) -> None:
        """Deliveries of the machine, which wait from now on."""
        self._waiting.extend(deliveries)
        self._since.extend([now] * len(deliveries))

    def due(self) -> tuple[int, list[Delivery]]:
        """What may be sent now: the number of the first, and the deliveries; perhaps none."""
        first = self._sent + 1
        room = min(self.taken + UNDER_WAY_COUNT_MAX - self._sent, FRAME_COUNT_MAX)
        skip = self._sent - self.taken
        found = list(islice(self._waiting, skip, skip + room)) if room > 0 else []
        self._sent += len(found)
        return first, found

    def took(self, count: int) -> bool:
        """The application took so many in all; True if these are more than before."""
        if count > self._sent:
            raise PeerError(f"{count:,} deliveries were taken, and {self._sent:,} were sent")
        more = count > self.taken
        while self.taken < count:
            self._waiting.popleft()
            self._since.popleft()
            self.taken += 1
        return more

    def again(self, taken: int) -> None:
        """On a new channel: the application took so many, and gets everything after them."""
        if not self.taken <= taken <= self.taken + len(self._waiting):
            raise PeerError(
                f"{taken:,} deliveries were taken, and what is kept begins after {self.taken:,}"
            )
        self._sent = self.taken + len(self._waiting)
        self.took(taken)
        self._sent = self.taken

    def waiting(self) -> tuple[Delivery, ...]:
        """All that was not taken."""
        return tuple(self._waiting)

    def lag_us(self, now: Instant) -> Duration:
        """For how long the oldest delivery waits."""
        return now - self._since[0] if self._since else 0

    @property
    def half_full(self) -> bool:
        return 2 * len(self._waiting) > self.buffer_count_max

    @property
    def full(self) -> bool:
        return len(self._waiting) > self.buffer_count_max

    def late(self, now: Instant) -> bool:
        """True if a delivery waits for too long."""
        return self.lag_us(now) > self.lag_us_max
