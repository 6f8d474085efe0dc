"""Stability: what everybody has who can still want it.

Each broker advertises, per topic and origin, up to where it and its attached subscribers have
everything; advertisements travel with the digests. A position is stable when all live brokers of
its topic have advertised it. What is stable need not be kept, and need not be named in the past of
a new event. Subscribers count: stability over brokers alone forgets what a subscriber still lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from concordant.causal.vector import Vector, copied, join, lift, position


class Stability(msgspec.Struct):
    """What one broker knows of who has what."""

    acknowledged: dict[str, Vector] = {}
    """By broker, itself among them."""
    stable: Vector = {}
    """As last worked out: never too high, because advertisements only rise."""

    def advertise(
        self, me: str, delivered: Vector, attached: Iterable[tuple[Sequence[str], Vector]]
    ) -> None:
        """Raise the own advertisement to what all attached subscribers have as well."""
        mine = self.acknowledged.setdefault(me, {})
        least = copied(delivered)
        for topics, acknowledged in attached:
            for topic in topics:
                row = least.get(topic, {})
                for origin, n in row.items():
                    row[origin] = min(n, position(acknowledged, topic, origin))
        for topic, row in least.items():
            for origin, n in row.items():
                lift(mine, topic, origin, n)

    def learn(self, acknowledged: Mapping[str, Vector]) -> None:
        """Take over what another broker knows."""
        for broker, vector in acknowledged.items():
            join(self.acknowledged.setdefault(broker, {}), vector)

    def settle(self, members: Mapping[str, Sequence[str]], dead: Mapping[str, bool]) -> None:
        """Work out what is stable."""
        known: dict[str, dict[str, bool]] = {}
        for vector in self.acknowledged.values():
            for topic, row in vector.items():
                known.setdefault(topic, {}).update(dict.fromkeys(row, True))
        for topic, origins in known.items():
            rows = [
                self.acknowledged.get(member, {}).get(topic, {})
                for member in members.get(topic, ())
                if member not in dead
            ]
            for origin in origins:
                if rows:
                    lift(self.stable, topic, origin, min(row.get(origin, 0) for row in rows))
