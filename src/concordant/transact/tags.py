"""Shared tables with pending tags: what open and static transactions change before they end.

An entry may be added by a transaction that is not decided yet, and deleted by some. It counts for
routing as soon as it is added and as long as nobody deletes it, so others see what is not committed
(weak isolation, as in the paper). A commit clears tags or removes entries, an abort undoes exactly
what this transaction did: no compensation, and decisions of different transactions may come in any
order. Entries travel with their tags. The module knows nothing of how a transaction is decided.
"""

from __future__ import annotations

import msgspec

from concordant.machine.inputs import Message
from concordant.route.filter import Filter
from concordant.route.messages import Subscribed
from concordant.route.router import Advertisement, Router, Subscription
from concordant.transact.messages import Recalled, Tagged


class Tags(msgspec.Struct):
    """Who has which entries pending."""

    added: dict[str, str] = {}
    """By id."""
    deleted: dict[str, list[str]] = {}
    touched: dict[str, dict[str, bool]] = {}
    """Ids by transaction."""


class TaggedRouter(Router):
    """A router whose entries may be pending."""

    def __init__(self, name: str, neighbours: tuple[str, ...] = ()) -> None:
        super().__init__(name, neighbours)
        self.tags = Tags()

    # --- pending changes ----------------------------------------------------------------------

    def add_advertisement(self, tx: str, id: str, wanted: Filter, hop: str) -> None:
        if id not in self.tables.advertisements:
            self.keep_advertisement(Advertisement(id, wanted, hop))
            self._tag_added(id, tx)

    def add_subscription(
        self, id: str, wanted: Filter, hop: str, added_by: str, deleted_by: tuple[str, ...] = ()
    ) -> Subscription | None:
        """A pending subscription; None if it is there already."""
        if id in self.tables.subscriptions:
            return None
        entry = Subscription(id, wanted, hop, {})
        self.keep_subscription(entry)
        if added_by:
            self._tag_added(id, added_by)
        for tx in deleted_by:
            self.tag_deleted(id, tx)
        return entry

    def _tag_added(self, id: str, tx: str) -> None:
        self.tags.added[id] = tx
        self.tags.touched.setdefault(tx, {})[id] = True

    def tag_deleted(self, id: str, tx: str) -> None:
        """Pending deletion of an entry that is there."""
        by = self.tags.deleted.setdefault(id, [])
        if tx not in by:
            by.append(tx)
        self.tags.touched.setdefault(tx, {})[id] = True

    def settle(self, tx: str, committed: bool) -> None:
        """Make the changes of a transaction good, or undo them; then tell the neighbours."""
        withdrawn: list[Filter] = []
        for id in self.tags.touched.pop(tx, {}):
            adds = self.tags.added.get(id) == tx
            deletes = tx in self.tags.deleted.get(id, ())
            if adds:
                del self.tags.added[id]
            if deletes:
                self.tags.deleted[id].remove(tx)
                if not self.tags.deleted[id]:
                    del self.tags.deleted[id]
            if deletes if committed else adds:
                if id in self.tables.subscriptions:
                    self.drop_subscription(id)  # whoever knows of it does the same
                elif id in self.tables.advertisements:
                    withdrawn.append(self.tables.advertisements[id].filter)
                    self.drop_advertisement(id)
        for wanted in withdrawn:
            self.reconcile_overlapping(wanted)

    def changes_of(self, tx: str, client: str) -> Recalled:
        """What a commit will change of a client's entries."""
        tables, tags = self.tables, self.tags
        ids = list(tags.touched.get(tx, {}))
        kept = [id for id in ids if tx not in tags.deleted.get(id, ())]
        gone = [id for id in ids if tx in tags.deleted.get(id, ())]
        return Recalled(
            tuple(
                (id, one.filter)
                for id in kept
                if (one := tables.advertisements.get(id)) and one.hop == client
            ),
            tuple(
                (id, two.filter)
                for id in kept
                if (two := tables.subscriptions.get(id)) and two.hop == client
            ),
            tuple(gone),
        )

    # --- what the plain router asks -----------------------------------------------------------

    def drop_advertisement(self, id: str) -> None:
        super().drop_advertisement(id)
        self._untag(id)

    def drop_subscription(self, id: str) -> None:
        super().drop_subscription(id)
        self._untag(id)

    def _untag(self, id: str) -> None:
        tags = self.tags
        for tx in (tags.added.pop(id, ""), *tags.deleted.pop(id, ())):
            if tx in tags.touched:
                tags.touched[tx].pop(id, None)
                if not tags.touched[tx]:
                    del tags.touched[tx]

    def _active(self, entry: Subscription) -> bool:
        return entry.id not in self.tags.deleted

    def _copy(self, entry: Subscription) -> Message:
        added_by = self.tags.added.get(entry.id, "")
        deleted_by = tuple(self.tags.deleted.get(entry.id, ()))
        if added_by or deleted_by:
            return Tagged(entry.id, entry.filter, added_by, deleted_by)
        return Subscribed(entry.id, entry.filter)
