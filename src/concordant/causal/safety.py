"""Safety: which events can no longer be lost, whoever else dies.

A broker that is wrongly held for dead goes on until it hears of it, and its subscribers have what
nobody else will ever have. In causal order that is harmless. In one line for all it is not: the
publisher has the event ordered again elsewhere, later in the line. So nothing is let go before it
is safe: as many brokers have it as can die at all and one more, or all that are left of its topics.
The module knows what brokers said that they have; it sends nothing.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

import msgspec

from concordant.causal.messages import Id, Ordered
from concordant.causal.placement import Members
from concordant.causal.vector import Vector, position


def deaths_max(broker_count: int) -> int:
    """A majority always lives (`flush`).

    >>> [deaths_max(count) for count in (1, 2, 3, 4, 5)]
    [0, 0, 1, 1, 2]
    """
    return (broker_count - 1) // 2


class Stale(msgspec.Struct, array_like=True):
    """What everybody has, and the greatest round at the moment when that was found out."""

    round: int
    stable: Vector


class Safety(msgspec.Struct):
    """What one broker knows of who has what it delivered."""

    had: dict[str, Vector] = {}
    """By broker: what it has, as it said last."""
    unsafe: dict[Id, bool] = {}
    """What was delivered here and may still be lost."""

    def settle(
        self,
        me: str,
        log: Mapping[Id, Ordered],
        members: Members,
        dead: Container[str],
        *,
        enough: int,
    ) -> None:
        """Find out what has become safe; what is no longer in the log is everywhere."""
        for identity in list(self.unsafe):
            ordered = log.get(identity)
            if ordered is None or self._safe(ordered, me, members, dead, enough):
                del self.unsafe[identity]

    def _safe(
        self, ordered: Ordered, me: str, members: Members, dead: Container[str], enough: int
    ) -> bool:
        concerned: set[str] = set()
        holding: set[str] = set()
        for topic, n in ordered.at.items():
            for broker in members.get(topic, ()):
                if broker in dead:
                    continue
                concerned.add(broker)
                if (
                    broker == me
                    or broker == ordered.origin
                    or position(self.had.get(broker, {}), topic, ordered.origin) >= n
                ):
                    holding.add(broker)
        return len(holding) >= enough or holding == concerned

    def limit(self, topic: str, log: Mapping[Id, Ordered]) -> int | None:
        """The first round of a topic that is not safe."""
        found = (log[one] for one in self.unsafe if one in log)
        return min((one.round for one in found if topic in one.at), default=None)
