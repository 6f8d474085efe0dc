"""Routing: who advertised, who subscribed, and which way a message goes.

A router keeps the advertisement table and the subscription table of one broker, by id, and decides.
Advertisements go everywhere; a subscription goes towards the advertisements that it overlaps, also
those that come after it; an event goes towards the subscriptions that mean it, once per way. The
overlay is a tree, so there is one way to everybody.

It knows hops (neighbours and clients by name), and hands out (hop, message) pairs in `out`. It
knows no time, no link, and nothing of transactions: what entries beyond the plain ones mean is for
subclasses to say, by `_active`, `_copy` and `_extra`.
"""

from __future__ import annotations

import msgspec

from concordant.machine.inputs import Message
from concordant.model.event import Event
from concordant.route.filter import Filter
from concordant.route.index import MatchingIndex
from concordant.route.messages import (
    Advertised,
    Published,
    Subscribed,
    Unadvertised,
    Unsubscribed,
    Welcome,
)

ENTRY_COUNT_MAX = 100_000
"""Advertisements and subscriptions of one client. Its own machine refuses more; a broker ignores
them, so that no client can fill its memory."""


class Advertisement(msgspec.Struct):
    """An entry of the advertisement table (the paper's SRT)."""

    id: str
    filter: Filter
    hop: str


class Subscription(msgspec.Struct):
    """An entry of the subscription table (the paper's PRT)."""

    id: str
    filter: Filter
    hop: str
    sent: dict[str, bool] = {}
    """The neighbours that know of it from here; a dict for its order."""


class Tables(msgspec.Struct):
    """What a router remembers."""

    advertisements: dict[str, Advertisement] = {}
    subscriptions: dict[str, Subscription] = {}
    counts: dict[str, int] = {}
    """Entries by client."""


class Router:
    """Tables and decisions of one broker."""

    def __init__(self, name: str, neighbours: tuple[str, ...] = ()) -> None:
        self.name = name
        self.neighbours = tuple(sorted(neighbours))
        self.tables = Tables()
        self.out: list[tuple[str, Message]] = []
        self._brokers = frozenset(neighbours)
        self._index = MatchingIndex()

    # --- regular operations -------------------------------------------------------------------

    def advertise(self, hop: str, id: str, wanted: Filter) -> None:
        """From a hop: somebody there is going to publish."""
        if id in self.tables.advertisements or not self.has_room(hop):
            return
        self.keep_advertisement(Advertisement(id, wanted, hop))
        self.flood(Advertised(id, wanted), but=hop)
        self.reconcile_overlapping(wanted)

    def unadvertise(self, hop: str, id: str) -> None:
        entry = self.tables.advertisements.get(id)
        if entry is None or entry.hop != hop:
            return
        self.drop_advertisement(id)
        self.flood(Unadvertised(id), but=hop)
        self.reconcile_overlapping(entry.filter)

    def subscribe(self, hop: str, id: str, wanted: Filter) -> None:
        if id in self.tables.subscriptions or not self.has_room(hop):
            return
        entry = Subscription(id, wanted, hop, {})
        self.keep_subscription(entry)
        self.reconcile(entry)

    def unsubscribe(self, hop: str, id: str) -> None:
        entry = self.tables.subscriptions.get(id)
        if entry is not None and entry.hop == hop:
            self.retract(entry)

    def publish(self, hop: str, event: Event) -> None:
        """Send an event on: to every hop behind which somebody wants it."""
        for to in self.hops_of(event, but=hop):
            self.out.append((to, Published(event)))

    def known_of(self, client: str) -> Welcome:
        """What is on record for a client."""
        tables = self.tables
        return Welcome(
            tuple(
                (one.id, one.filter) for one in tables.advertisements.values() if one.hop == client
            ),
            tuple(
                (one.id, one.filter) for one in tables.subscriptions.values() if one.hop == client
            ),
        )

    # --- decisions ----------------------------------------------------------------------------

    def hops_of(self, event: Event, *, but: str) -> list[str]:
        """Where subscriptions that mean the event came from, each once."""
        subscriptions = self.tables.subscriptions
        found = {
            entry.hop
            for key in self._index.matching(event)
            if self._active(entry := subscriptions[key])
        }
        found.update(self._extra(event))
        found.discard(but)
        return sorted(found)

    def wanted_by(self, entry: Subscription) -> list[str]:
        """The neighbours that have to know of a subscription: those with advertisements for it."""
        return sorted(
            {
                one.hop
                for one in self.tables.advertisements.values()
                if one.hop != entry.hop
                and one.hop in self._brokers
                and one.filter.overlaps(entry.filter)
            }
        )

    def reconcile(self, entry: Subscription) -> None:
        """Tell those who have to know, and those who need no longer."""
        want = self.wanted_by(entry)
        for hop in want:
            if hop not in entry.sent:
                self.out.append((hop, self._copy(entry)))
        for hop in entry.sent:
            if hop not in want:
                self.out.append((hop, Unsubscribed(entry.id)))
        entry.sent = dict.fromkeys(want, True)

    def reconcile_overlapping(self, wanted: Filter) -> None:
        for entry in list(self.tables.subscriptions.values()):
            if entry.filter.overlaps(wanted):
                self.reconcile(entry)

    def retract(self, entry: Subscription) -> None:
        """Forget a subscription here and wherever it went from here."""
        self.drop_subscription(entry.id)
        for hop in entry.sent:
            self.out.append((hop, Unsubscribed(entry.id)))

    def flood(self, message: Message, *, but: str = "") -> None:
        """To all neighbours but one."""
        for hop in self.neighbours:
            if hop != but:
                self.out.append((hop, message))

    # --- tables -------------------------------------------------------------------------------

    def keep_advertisement(self, entry: Advertisement) -> None:
        self._count(entry.hop, 1)
        self.tables.advertisements[entry.id] = entry

    def drop_advertisement(self, id: str) -> None:
        self._count(self.tables.advertisements.pop(id).hop, -1)

    def keep_subscription(self, entry: Subscription) -> None:
        self._count(entry.hop, 1)
        self.tables.subscriptions[entry.id] = entry
        self._index.add(entry.id, entry.filter)

    def drop_subscription(self, id: str) -> None:
        self._count(self.tables.subscriptions.pop(id).hop, -1)
        self._index.remove(id)

    def is_broker(self, hop: str) -> bool:
        return hop in self._brokers

    def has_room(self, hop: str) -> bool:
        """May a hop have one more entry? A neighbour's entries are its clients' and its matter."""
        return self.tables.counts.get(hop, 0) < ENTRY_COUNT_MAX

    def _count(self, hop: str, more: int) -> None:
        if hop in self._brokers:
            return
        counts = self.tables.counts
        counts[hop] = counts.get(hop, 0) + more
        if not counts[hop]:
            del counts[hop]

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.tables)

    def restore(self, data: bytes) -> None:
        self.tables = msgspec.msgpack.decode(data, type=Tables)
        self._index = MatchingIndex()
        for entry in self.tables.subscriptions.values():
            self._index.add(entry.id, entry.filter)

    # --- what a subclass may say otherwise ----------------------------------------------------

    def _active(self, entry: Subscription) -> bool:
        """Does it count for regular events?"""
        return True

    def _copy(self, entry: Subscription) -> Message:
        """How a neighbour is told of it."""
        return Subscribed(entry.id, entry.filter)

    def _extra(self, event: Event) -> list[str]:
        """Further hops for a regular event."""
        return []
