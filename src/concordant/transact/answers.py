"""Open transactions: an operation is answered when it is done everywhere, and then the next comes.

Operations act on the shared tables with pending tags, so others see them before the commit. What an
advertisement attracts is sent as an operation of its own and answered, too. (Jergler 2017,
section V; what an abort does is not said there, the tags do it.)
"""

from __future__ import annotations

from concordant.route.router import Subscription
from concordant.transact.messages import Operation, Perform, Performed, Tagged
from concordant.transact.shared import Live, SharedRouter

_Sent = list[tuple[str, str]]


def perform(router: SharedRouter, hop: str, message: Perform) -> None:
    """An operation has come."""
    live = router.live_of(hop, message.tx)
    tx, op, what = message.tx, message.op, message.what
    if live is None:
        if what.kind == "attract":  # whoever sent it counts on it, and takes it back by itself
            router.take_copy(hop, Tagged(what.id, what.filter, what.added_by, what.deleted_by))
        return
    known = live.acks.ops.get(op)
    if known is not None:  # sent again: answer again if it is done
        if not known.waiting:
            router.out.append((hop, Performed(tx, op, known.ran)))
        return
    if what.kind != "attract":
        router.did(tx, op)
    sent, ran = _do(router, live, hop, message)
    if live.acks.begin(op, hop, sent, ran=ran):
        router.out.append((hop, Performed(tx, op, ran)))


def performed(router: SharedRouter, hop: str, message: Performed) -> None:
    live = router.state.live.get(message.tx)
    if live is None:
        return
    done = live.acks.answer(hop, message.op, message.ran)
    if done is not None:
        origin, op, ran = done
        router.out.append((origin, Performed(message.tx, op, ran)))


def _do(router: SharedRouter, live: Live, hop: str, message: Perform) -> tuple[_Sent, bool]:
    """Do the operation here and send it on; who has to answer, and whether a trigger ran here."""
    tx, op, what = message.tx, message.op, message.what
    ran = what.kind != "trigger"
    if what.kind == "advertise":
        router.add_advertisement(tx, what.id, what.filter, hop)
        return _attracted(router, tx, op, what) + _on(router, hop, message, router.neighbours), ran
    if what.kind == "attract":
        return _attract(router, tx, op, hop, what), ran
    if what.kind == "unadvertise":
        if what.id in router.tables.advertisements:
            router.tag_deleted(what.id, tx)
        return _on(router, hop, message, router.neighbours), ran
    if what.kind == "subscribe":
        entry = router.add_subscription(what.id, what.filter, hop, tx)
        if entry is None:
            return [], ran
        entry.sent = dict.fromkeys(router.wanted_by(entry), True)
        return _on(router, hop, message, tuple(entry.sent)), ran
    if what.kind == "unsubscribe":
        entry = router.tables.subscriptions.get(what.id)
        if entry is None:
            return [], ran
        router.tag_deleted(what.id, tx)
        return _on(router, hop, message, tuple(entry.sent)), ran
    assert what.event is not None
    hops = router.hops_of(what.event, but=hop)
    sent = _on(router, hop, message, tuple(one for one in hops if router.is_broker(one)))
    for client in hops:
        if not router.is_broker(client):
            live.outbox.append((client, op, what.event))
            if client == what.target:
                live.parts[client] = True
                sent += _on(router, hop, message, (client,))
    return sent, ran


def _on(router: SharedRouter, hop: str, message: Perform, to: tuple[str, ...]) -> _Sent:
    hops = [other for other in to if other != hop]
    router.out += [(other, message) for other in hops]
    return [(other, message.op) for other in hops]


def _attracted(router: SharedRouter, tx: str, op: str, what: Operation) -> _Sent:
    """The subscriptions that follow a new advertisement, each as an operation of its own."""
    sent: _Sent = []
    for entry in list(router.tables.subscriptions.values()):
        if entry.filter.overlaps(what.filter):
            sent += _spread(router, tx, op, entry)
    return sent


def _attract(router: SharedRouter, tx: str, op: str, hop: str, what: Operation) -> _Sent:
    tagged = router.current(what.added_by, what.deleted_by)
    if tagged is None:
        return []
    router.state.retracted.pop(what.id, None)
    entry = router.add_subscription(what.id, what.filter, hop, *tagged)
    return [] if entry is None else _spread(router, tx, op, entry)


def _spread(router: SharedRouter, tx: str, op: str, entry: Subscription) -> _Sent:
    """Tell of a subscription whoever has to know and does not."""
    tags = router.tags
    added_by = tags.added.get(entry.id, "")
    deleted_by = tuple(tags.deleted.get(entry.id, ()))
    name = f"{op}|{router.name}|{entry.id}"
    what = Operation("attract", entry.id, entry.filter, added_by=added_by, deleted_by=deleted_by)
    sent: _Sent = []
    for other in router.wanted_by(entry):
        if other not in entry.sent:
            entry.sent[other] = True
            router.out.append((other, Perform(tx, name, what)))
            sent.append((other, name))
    return sent
