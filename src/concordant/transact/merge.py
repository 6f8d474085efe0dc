"""A commit at one broker: a context's changes go into the tables, and the neighbours are told.

The tables may have changed since the context's base, by regular traffic and by other commits, so
nothing is replaced: what was added is added, what was deleted is deleted, and subscriptions are
told to, and taken back from, whoever has to know by now. What was sent inside the transaction is
said once more as regular traffic, because regular traffic may have crossed it; a neighbour that
knows already ignores it.
"""

from __future__ import annotations

from concordant.route.messages import Subscribed, Unsubscribed
from concordant.route.router import Subscription
from concordant.transact.context import Context
from concordant.transact.messages import Recalled
from concordant.transact.versions import VersionedRouter


def merge(router: VersionedRouter, tx: str, context: Context) -> None:
    """Make a transaction's changes at this broker good."""
    versions, tables = router.versions, router.tables
    versions.number += 1
    if context.writes and versions.contexts:
        versions.log.append((versions.number, context.writes))
    router.merging = True
    _delete(router, tx, context)
    for added in context.advertisements.values():
        if added.id not in tables.advertisements:
            router.keep_advertisement(added)
    for one in context.subscriptions.values():
        if one.id not in tables.subscriptions:
            router.keep_subscription(Subscription(one.id, one.filter, one.hop, {}))
    router.merging = False
    changed = dict.fromkeys(context.subscriptions)
    for id, hop in context.sent:
        entry = tables.subscriptions.get(id)
        if entry is None:  # a regular end has crossed it
            router.out.append((hop, Unsubscribed(id)))
        elif hop not in entry.sent:
            entry.sent[hop] = True
            router.out.append((hop, Subscribed(id, entry.filter)))
            changed[id] = None
    for id, hop in context.unsent:
        entry = tables.subscriptions.get(id)
        if entry is not None:
            entry.sent.pop(hop, None)
            changed[id] = None
    filters = [write.filter for write in context.writes if write.advertises]
    for known in list(tables.subscriptions.values()):
        if known.id in changed or any(known.filter.overlaps(wanted) for wanted in filters):
            router.reconcile(known)


def _delete(router: VersionedRouter, tx: str, context: Context) -> None:
    tables = router.tables
    for id in context.deleted:
        if id in tables.advertisements:
            router.drop_advertisement(id)
        elif id in tables.subscriptions:
            entry = tables.subscriptions[id]
            router.retract(entry)
            # Regular events that are under way still reach the old place.
            drained = router.versions.draining.setdefault(tx, [])
            drained.append((entry.filter, entry.hop))


def recalled(context: Context, client: str) -> Recalled:
    """What a commit changed of a client's entries, for one that lost its memory meanwhile."""
    return Recalled(
        tuple((e.id, e.filter) for e in context.advertisements.values() if e.hop == client),
        tuple((e.id, e.filter) for e in context.subscriptions.values() if e.hop == client),
        tuple(context.deleted),
    )
