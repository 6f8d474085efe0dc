"""Operations of isolated transactions: done in their contexts, sent on as their contexts see it.

An operation is answered when it is done everywhere. What an advertisement attracts, or lets go, is
an operation of its own with a name of its own; nobody asked for it, so it never clashes with
anything.
"""

from __future__ import annotations

from concordant.route.router import Advertisement, Subscription
from concordant.transact.context import Context, Write
from concordant.transact.isolated import IsolatedRouter
from concordant.transact.messages import Operation, Perform, Performed

_Sent = list[tuple[str, str]]


def perform(router: IsolatedRouter, hop: str, message: Perform) -> None:
    """An operation has come."""
    tx, op, what = message.tx, message.op, message.what
    context = router.versions.contexts.get(tx)
    if context is None:
        router.tell_late(hop, tx)
        return
    if not router.is_broker(hop):
        context.parts[hop] = True
    known = context.acks.ops.get(op)
    if known is not None:  # sent again: answer again if it is done
        if not known.waiting:
            router.out.append((hop, Performed(tx, op, known.ran)))
        return
    if what.kind not in ("attract", "retract"):
        router.did(tx, op)
        context.ops.append(Write(what.kind, hop, what.id, what.filter, what.event))
    sent = _do(router, context, hop, message)
    ran = what.kind != "trigger"
    if context.acks.begin(op, hop, sent, ran=ran):
        router.out.append((hop, Performed(tx, op, ran)))


def performed(router: IsolatedRouter, hop: str, message: Performed) -> None:
    context = router.versions.contexts.get(message.tx)
    if context is None:
        return
    done = context.acks.answer(hop, message.op, message.ran)
    if done is not None:
        origin, op, ran = done
        router.out.append((origin, Performed(message.tx, op, ran)))


def _do(router: IsolatedRouter, context: Context, hop: str, message: Perform) -> _Sent:
    """Do the operation here and send it on; who has to answer."""
    what = message.what
    if what.kind == "advertise":
        sent = _follow(router, context, hop, message, "attract")
        context.advertisements[what.id] = Advertisement(what.id, what.filter, hop)
        return sent + _on(router, hop, message, router.neighbours)
    if what.kind == "unadvertise":
        context.advertisements.pop(what.id, None)
        context.deleted[what.id] = True
        sent = _follow(router, context, hop, message, "retract")
        return sent + _on(router, hop, message, router.neighbours)
    if what.event is not None:
        return _publish(router, context, hop, message)
    ways = router.ways_of(context, what.filter, but=hop)
    if what.kind in ("subscribe", "attract"):
        context.deleted.pop(what.id, None)
        context.subscriptions[what.id] = Subscription(what.id, what.filter, hop, {})
        for other in ways:
            context.sent[what.id, other] = True
            context.unsent.pop((what.id, other), None)
    else:
        context.subscriptions.pop(what.id, None)
        context.deleted[what.id] = True
        for other in router.neighbours:
            context.sent.pop((what.id, other), None)
    return _on(router, hop, message, tuple(ways))


def _follow(
    router: IsolatedRouter, context: Context, hop: str, message: Perform, kind: str
) -> _Sent:
    """Subscriptions that must go to, or back from, the hop of an advertisement: those for which it
    has no other one."""
    if not router.is_broker(hop):
        return []
    wanted = message.what.filter
    others = [one.filter for one in router.seen_advertisements(context) if one.hop == hop]
    sent: _Sent = []
    for entry in list(router.seen_subscriptions(context)):
        if entry.hop == hop or not entry.filter.overlaps(wanted):
            continue
        if any(entry.filter.overlaps(one) for one in others):
            continue
        name = f"{message.op}|{router.name}|{entry.id}"
        what = Operation(kind, entry.id, entry.filter)  # type: ignore[arg-type]
        router.out.append((hop, Perform(message.tx, name, what)))
        sent.append((hop, name))
        here, there = (
            (context.sent, context.unsent) if kind == "attract" else (context.unsent, context.sent)
        )
        here[entry.id, hop] = True
        there.pop((entry.id, hop), None)
    return sent


def _publish(router: IsolatedRouter, context: Context, hop: str, message: Perform) -> _Sent:
    what = message.what
    assert what.event is not None
    hops = router.targets_of(context, what.event, but=hop)
    sent = _on(router, hop, message, tuple(one for one in hops if router.is_broker(one)))
    for client in hops:
        if not router.is_broker(client):
            context.outbox.append((client, message.op, what.event))
            if client == what.target:
                context.parts[client] = True
                sent += _on(router, hop, message, (client,))
    return sent


def _on(router: IsolatedRouter, hop: str, message: Perform, to: tuple[str, ...]) -> _Sent:
    hops = [other for other in to if other != hop]
    router.out += [(other, message) for other in hops]
    return [(other, message.op) for other in hops]
