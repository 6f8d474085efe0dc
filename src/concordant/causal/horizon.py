"""The horizon: up to which round a broker has everything that others have ordered.

Rounds and origins together order all events in one line: no two are equal, and whatever an event
follows has a smaller round. Who wants that order must know when nothing smaller can come. A broker
knows it of another in two ways. An event of that one was delivered here: then so was everything
that it ordered before. Or it said how far it is, its round and its positions, and all of these were
delivered here. The dead count until it is agreed what exists of their events, and that is here.
"""

from __future__ import annotations

import msgspec


class Claim(msgspec.Struct, array_like=True):
    """A broker has reached a round, and ordered this far in each topic."""

    round: int
    positions: dict[str, int]


class Horizon(msgspec.Struct):
    """What one broker knows of the others.

    >>> horizon = Horizon()
    >>> horizon.claimed("b", 7, {"T": 2})
    >>> horizon.look({"T": {"b": 1}}), horizon.reached
    (None, {})
    >>> horizon.look({"T": {"b": 2}}), horizon.reached
    (None, {'b': 7})
    """

    reached: dict[str, int] = {}
    """By broker: of its events, all up to this round are here."""
    claims: dict[str, Claim] = {}
    """What is not here yet; the oldest claim stays until it is."""

    def delivered(self, origin: str, round: int) -> None:
        """An event was delivered, and with it everything that its origin ordered before."""
        if round > self.reached.get(origin, 0):
            self.reached[origin] = round

    def claimed(self, broker: str, round: int, positions: dict[str, int]) -> None:
        """A broker says how far it is."""
        if broker not in self.claims and round > self.reached.get(broker, 0):
            self.claims[broker] = Claim(round, positions)

    def look(self, delivered: dict[str, dict[str, int]]) -> None:
        """Which of the claims are here by now?"""
        for broker, claim in list(self.claims.items()):
            if all(
                delivered.get(topic, {}).get(broker, 0) >= n for topic, n in claim.positions.items()
            ):
                self.delivered(broker, claim.round)
                del self.claims[broker]
