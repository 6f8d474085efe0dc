"""Tables with versions: what each open context sees, while regular traffic goes on beside it.

Every change of the tables has a number. A context sees the entries that were there at its base and
its own changes, and nothing else; entries that went since are kept for it. Regular traffic sees the
tables as they are, and for a while also the subscriptions that a commit has just removed, so that
an event which is under way while a subscription moves reaches one of the two.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from concordant.model.event import Event
from concordant.route.filter import Filter
from concordant.route.router import Advertisement, Router, Subscription
from concordant.transact.context import Context, Dead, Write


class Versions(msgspec.Struct):
    """What the tables themselves do not say."""

    number: int = 0
    """Of the last change."""
    born: dict[str, int] = {}
    dead: list[Dead] = []
    contexts: dict[str, Context] = {}
    log: list[tuple[int, list[Write]]] = []
    """What was committed since the oldest base."""
    draining: dict[str, list[tuple[Filter, str]]] = {}
    """Subscriptions that a commit removed, by transaction."""


class VersionedRouter(Router):
    """A router whose tables contexts see as they were."""

    def __init__(self, name: str, neighbours: tuple[str, ...] = ()) -> None:
        super().__init__(name, neighbours)
        self.versions = Versions()
        self.merging = False
        """Changes of a commit have one number together."""

    # --- what a context sees ------------------------------------------------------------------

    def seen_subscriptions(self, context: Context) -> Iterator[Subscription]:
        yield from context.subscriptions.values()
        for entry in self.tables.subscriptions.values():
            if self._seen(entry.id, context):
                yield entry
        for one in self.versions.dead:
            if one.subscription and _still_seen(one, context):
                yield Subscription(one.id, one.filter, one.hop, {})

    def seen_advertisements(self, context: Context) -> Iterator[Advertisement]:
        yield from context.advertisements.values()
        for entry in self.tables.advertisements.values():
            if self._seen(entry.id, context):
                yield entry
        for one in self.versions.dead:
            if not one.subscription and _still_seen(one, context):
                yield Advertisement(one.id, one.filter, one.hop)

    def _seen(self, id: str, context: Context) -> bool:
        return (
            self.versions.born[id] <= context.base
            and id not in context.deleted
            and id not in context.subscriptions
            and id not in context.advertisements
        )

    def ways_of(self, context: Context, wanted: Filter, *, but: str) -> list[str]:
        """The neighbours behind which a context sees advertisements for a filter."""
        return sorted(
            {
                one.hop
                for one in self.seen_advertisements(context)
                if one.hop != but and self.is_broker(one.hop) and one.filter.overlaps(wanted)
            }
        )

    def targets_of(self, context: Context, event: Event, *, but: str) -> list[str]:
        """The hops behind which a context sees subscriptions for an event."""
        found = {one.hop for one in context.subscriptions.values() if one.filter.matches(event)}
        tables = self.tables.subscriptions
        found |= {
            tables[key].hop for key in self._index.matching(event) if self._seen(key, context)
        }
        found |= {
            one.hop
            for one in self.versions.dead
            if one.subscription and _still_seen(one, context) and one.filter.matches(event)
        }
        found.discard(but)
        return sorted(found)

    # --- changes ------------------------------------------------------------------------------

    def keep_advertisement(self, entry: Advertisement) -> None:
        super().keep_advertisement(entry)
        self.versions.born[entry.id] = self._next()

    def keep_subscription(self, entry: Subscription) -> None:
        super().keep_subscription(entry)
        self.versions.born[entry.id] = self._next()

    def drop_advertisement(self, id: str) -> None:
        entry = self.tables.advertisements[id]
        super().drop_advertisement(id)
        self._bury(entry.id, entry.filter, entry.hop, subscription=False)

    def drop_subscription(self, id: str) -> None:
        entry = self.tables.subscriptions[id]
        super().drop_subscription(id)
        self._bury(entry.id, entry.filter, entry.hop, subscription=True)

    def _next(self) -> int:
        if not self.merging:
            self.versions.number += 1
        return self.versions.number

    def _bury(self, id: str, wanted: Filter, hop: str, *, subscription: bool) -> None:
        born, died = self.versions.born.pop(id), self._next()
        if any(born <= one.base < died for one in self.versions.contexts.values()):
            self.versions.dead.append(Dead(id, wanted, hop, subscription, born, died))

    def prune(self) -> None:
        """Forget what no open context can see or clash with."""
        versions = self.versions
        bases = [one.base for one in versions.contexts.values()]
        oldest = min(bases, default=versions.number)
        versions.log = [one for one in versions.log if one[0] > oldest]
        versions.dead = [
            one for one in versions.dead if any(one.born <= base < one.died for base in bases)
        ]

    def _extra(self, event: Event) -> list[str]:
        return [
            hop
            for entries in self.versions.draining.values()
            for wanted, hop in entries
            if wanted.matches(event)
        ]


def _still_seen(one: Dead, context: Context) -> bool:
    return (
        one.born <= context.base < one.died
        and one.id not in context.deleted
        and one.id not in context.subscriptions
        and one.id not in context.advertisements
    )
