"""Leases: who is not heard of for too long is no longer ordered with, and knows it.

A subscriber that died keeps edges alive that nobody needs. So each renews a lease at the sequencers
of its topics, and one that has not renewed for `lease_us` is forgotten there. It may be alive all
the same, cut off; then it must not go on delivering, because topics that it holds may no longer be
ordered for it. A subscriber therefore stops by itself when half of the lease has passed since it
sent a renewal that was answered, which is before anybody forgets it. It relies on clocks that run
about equally fast, never on what they show. A sequencer that has forgotten it says so, and the
topic is subscribed anew.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from concordant.machine.instant import Duration, Instant


class Tenancy(msgspec.Struct):
    """A subscriber's side.

    >>> mine = Tenancy(100)
    >>> mine.stands(5, ["a"]), mine.confirm("a", 10), mine.stands(50, ["a"]), mine.stands(70, ["a"])
    (False, None, True, False)
    """

    lease_us: Duration
    """0: there are no leases."""
    confirmed: dict[str, Instant] = {}
    """When the last renewal was sent that the sequencer of a topic has answered."""

    @property
    def wait_us(self) -> Duration:
        """How long until the next renewal."""
        return max(1, self.lease_us // 8)

    def confirm(self, topic: str, sent_at: Instant) -> None:
        self.confirmed[topic] = max(sent_at, self.confirmed.get(topic, sent_at))

    def stands(self, now: Instant, topics: Iterable[str]) -> bool:
        """True if nobody can have forgotten that these topics are held."""
        if not self.lease_us:
            return True
        half = self.lease_us // 2
        return all(
            topic in self.confirmed and now - self.confirmed[topic] < half for topic in topics
        )


class Tenants(msgspec.Struct):
    """A sequencer's side."""

    lease_us: Duration
    heard: dict[str, Instant] = {}

    @property
    def wait_us(self) -> Duration:
        """How long until it looks again."""
        return max(1, self.lease_us // 4)

    def hear(self, client: str, now: Instant) -> None:
        self.heard[client] = now

    def gone(self, now: Instant, clients: Iterable[str]) -> list[str]:
        """Those who have not been heard of for too long; who is new here is heard of now."""
        known = list(clients)
        self.heard = {client: self.heard.get(client, now) for client in known}
        return [client for client in known if now - self.heard[client] > self.lease_us]
