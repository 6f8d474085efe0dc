"""Stability: what everybody has who can still want it.

Each broker advertises, per topic and origin, up to where it and its attached subscribers have
everything; advertisements travel with the digests. A position is stable when all live brokers of
its topic have advertised it. What is stable need not be kept, and need not be named in the past of
a new event. Subscribers count: stability over brokers alone forgets what a subscriber still lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from concordant.causal.vector import Vector, copied, join, lift


class Stability(msgspec.Struct):
    """What one broker knows of who has what."""

    acknowledged: dict[str, Vector] = {}
    """By broker, itself among them."""
    stable: Vector = {}
    """As last worked out: never too high, because advertisements only rise."""
    stale: bool = True
    """Something has changed since that was worked out."""

    def advertise(
        self, me: str, delivered: Vector, attached: Iterable[tuple[Sequence[str], Vector]]
    ) -> None:
        """Raise the own advertisement to what all attached subscribers have as well."""
        least = copied(delivered)
        for topics, acknowledged in attached:
            for topic in topics:
                row = least.get(topic)
                if row is not None:
                    had = acknowledged.get(topic, {})
                    for origin, n in row.items():
                        if had.get(origin, 0) < n:
                            row[origin] = had.get(origin, 0)
        join(self.acknowledged.setdefault(me, {}), least)

    def learn(self, acknowledged: Mapping[str, Vector]) -> None:
        """Take over what another broker knows."""
        for broker, vector in acknowledged.items():
            if join(self.acknowledged.setdefault(broker, {}), vector):
                self.stale = True

    def settle(self, members: Mapping[str, Sequence[str]], dead: Mapping[str, bool]) -> None:
        """Work out what is stable."""
        self.stale = False
        topics = dict.fromkeys(t for vector in self.acknowledged.values() for t in vector)
        for topic in topics:
            rows = [
                self.acknowledged.get(member, {}).get(topic, {})
                for member in members.get(topic, ())
                if member not in dead
            ]
            if not rows:
                continue
            first, *others = rows
            for origin, n in first.items():  # what one of them has nothing of is not stable
                for row in others:
                    n = min(n, row.get(origin, 0))
                if n:
                    lift(self.stable, topic, origin, n)
