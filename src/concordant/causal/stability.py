"""Stability: what everybody has who can still want it.

Each broker advertises, per topic and origin, up to where it and its attached subscribers have
everything; advertisements travel with the digests. A position is stable when all live brokers of
its topic have advertised it. What is stable need not be kept, and need not be named in the past of
a new event. Subscribers count: stability over brokers alone forgets what a subscriber still lacks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import msgspec

from concordant.causal.vector import Vector, lift, position


class Stability(msgspec.Struct):
    """What one broker knows of who has what."""

    acknowledged: dict[str, Vector] = {}
    """By broker, itself among them. A vector here is replaced and never changed: it is in digests
    that are on their way."""
    stable: Vector = {}
    """As last worked out: never too high, because advertisements only rise."""
    unstable: Vector = {}
    """What was delivered, or lies in the past of something that was, and is not stable: what the
    next event has to name. Kept up to date, because topics may be many and few of them busy."""
    changed: dict[str, bool] = {}
    """Topics of which something has changed since that was worked out."""

    def delivered(self, topic: str, origin: str, n: int) -> None:
        """A position is in the past of whatever is ordered here from now on."""
        if n > position(self.stable, topic, origin):
            lift(self.unstable, topic, origin, n)

    def touch(self, topics: Iterable[str]) -> None:
        """Something may have changed in these topics."""
        for topic in topics:
            self.changed[topic] = True

    def touch_all(self) -> None:
        """Who counts has changed."""
        self.touch(chain.from_iterable(self.acknowledged.values()))

    def advertise(
        self, me: str, delivered: Vector, attached: Iterable[tuple[Sequence[str], Vector]]
    ) -> None:
        """Raise the own advertisement to what all attached subscribers have as well."""
        rows = {topic: dict(delivered[topic]) for topic in self.changed if topic in delivered}
        for topics, acknowledged in attached:
            for topic in topics:
                row = rows.get(topic)
                if row is not None:
                    had = acknowledged.get(topic, {})
                    for origin, n in row.items():
                        if had.get(origin, 0) < n:
                            row[origin] = had.get(origin, 0)
        self._raise(me, rows)

    def learn(self, acknowledged: Mapping[str, Vector]) -> None:
        """Take over what another broker knows."""
        for broker, vector in acknowledged.items():
            if vector != self.acknowledged.get(broker):
                self._raise(broker, vector)

    def _raise(self, broker: str, vector: Vector) -> None:
        """Take over what is higher in a vector."""
        before = self.acknowledged.get(broker, {})
        after: Vector | None = None
        for topic, row in vector.items():
            known = before.get(topic, {})
            higher = {origin: n for origin, n in row.items() if n > known.get(origin, 0)}
            if higher:
                after = dict(before) if after is None else after
                after[topic] = {**known, **higher}
                self.changed[topic] = True
        if after is not None:
            self.acknowledged[broker] = after

    def settle(self, members: Mapping[str, Sequence[str]], dead: Mapping[str, bool]) -> list[str]:
        """Work out what is stable; in which topics it may be more than before."""
        topics, self.changed = list(self.changed), {}
        for topic in topics:
            rows = [
                self.acknowledged.get(member, {}).get(topic, {})
                for member in members.get(topic, ())
                if member not in dead
            ]
            if not rows or not all(rows):
                continue  # what one of them has nothing of is not stable
            first, *others = rows
            reached = self.stable.setdefault(topic, {})
            for origin, n in first.items():
                for row in others:
                    had = row.get(origin, 0)
                    if had < n:
                        n = had
                if n > reached.get(origin, 0):
                    reached[origin] = n
            rest = self.unstable.get(topic, {})
            for origin in [one for one, n in rest.items() if n <= reached.get(one, 0)]:
                del rest[origin]
            if not rest:
                self.unstable.pop(topic, None)
        return topics
