"""Static transactions: operations in one order at every broker, without waiting for answers.

Every operation goes over every link away from its sender exactly once: as itself where it has to
go, else as a marker. So each broker sees all of them and does each one after the one before it,
however they overtake each other on the way. An advertisement also has to come back from everywhere
(`Echo`) before the next operation: by then all that it attracts is on its way, ahead on the same
links. When the last operation is done at the coordinator, the transaction commits: the decision
follows it over the same links. Only where somebody advertised, brokers vote first, unasked.
Regular traffic is never held up. (Jergler 2017, section VI; the paper lets each broker work out
which operations concern it, and that cannot be known locally.)
"""

from __future__ import annotations

from concordant.transact.messages import Echo, Mark, Place, Planned, Refuse
from concordant.transact.shared import Echoing, Live, SharedRouter

FIRST = "1"
"""The first operation of any plan: it comes from the coordinator."""
CROWDED = "too many of its operations wait at one broker"


def place(router: SharedRouter, hop: str, message: Place | Mark) -> None:
    """An operation, or its marker, has come."""
    live = router.live_of(hop, message.tx)
    if live is None or message.op in live.seen:
        return
    live.seen[message.op] = True
    if message.after and message.after not in live.done:
        live.waiting.append((hop, message))
        if len(live.waiting) > router.options.waiting_count_max:
            router.refuse("", Refuse(message.tx, CROWDED))
        return
    _process(router, live, hop, message)
    release(router, message.tx)


def release(router: SharedRouter, tx: str) -> None:
    """Do what waited, the first that can be done first."""
    while (live := router.state.live.get(tx)) is not None:
        ready = (n for n, (_, one) in enumerate(live.waiting) if one.after in live.done)
        number = next(ready, None)
        if number is None:
            return
        _process(router, live, *live.waiting.pop(number))


def echo(router: SharedRouter, hop: str, message: Echo) -> None:
    live = router.state.live.get(message.tx)
    if live is None or message.op not in live.echoes:
        return
    waiting = live.echoes[message.op]
    waiting.waiting.pop(hop, None)
    if not waiting.waiting:
        _advertised(router, live, message.tx, message.op, waiting.origin)
        release(router, message.tx)


def _advertised(router: SharedRouter, live: Live, tx: str, op: str, origin: str) -> None:
    live.echoes.pop(op, None)
    if router.is_broker(origin):
        router.out.append((origin, Echo(tx, op)))
    _done(router, live, tx, op)


def _done(router: SharedRouter, live: Live, tx: str, op: str) -> None:
    live.done[op] = True
    if op == live.last:
        router.complete(tx, live)


def _process(router: SharedRouter, live: Live, hop: str, message: Place | Mark) -> None:
    tx, op = message.tx, message.op
    router.did(tx, op)
    if op == FIRST:
        live.asked_by = hop
    if message.last:
        live.last = op
    if isinstance(message, Mark):
        router.flood(message, but=hop)
        _done(router, live, tx, op)
        return
    what = message.what
    if what.kind == "advertise":
        router.add_advertisement(tx, what.id, what.filter, hop)
        router.flood(message, but=hop)
        router.reconcile_overlapping(what.filter)
        waiting = {other: True for other in router.neighbours if other != hop}
        live.advertises = True
        if waiting:
            live.echoes[op] = Echoing(hop, waiting)
        else:
            _advertised(router, live, tx, op, hop)
        return
    towards = _towards(router, live, hop, message)
    passed = Mark(tx, op, message.after, message.last)
    for other in router.neighbours:
        if other != hop:
            router.out.append((other, message if other in towards else passed))
    if what.kind == "subscribe" and router.state.retracted.pop(what.id, None) is not None:
        router.unsubscribe(hop, what.id)
    _done(router, live, tx, op)


def _towards(router: SharedRouter, live: Live, hop: str, message: Place) -> list[str]:
    """Do the operation here, and say to which neighbours it goes on."""
    tx, what = message.tx, message.what
    if what.kind == "unadvertise":
        if what.id in router.tables.advertisements:
            router.tag_deleted(what.id, tx)
        return list(router.neighbours)
    if what.kind == "subscribe":
        entry = router.add_subscription(what.id, what.filter, hop, tx)
        if entry is None:
            return []  # it came already, after an advertisement
        entry.sent = dict.fromkeys(router.wanted_by(entry), True)
        return list(entry.sent)
    if what.kind == "unsubscribe":
        entry = router.tables.subscriptions.get(what.id)
        if entry is None:
            return []
        router.tag_deleted(what.id, tx)
        return list(entry.sent)
    assert what.event is not None
    hops = router.hops_of(what.event, but=hop)
    for client in hops:
        if not router.is_broker(client):
            live.outbox.append((client, message.op, what.event))
            if what.kind == "trigger" and client == what.target:
                live.parts[client] = True
                router.out.append((client, Planned(tx, message.op, what.steps)))
    return hops
