"""A client's state after a crash, from what it made durable: a snapshot, perhaps, and records."""

from __future__ import annotations

import msgspec

from concordant.causal.messages import Carried
from concordant.causal.records import (
    Accepted,
    Caught,
    Gap,
    Joined,
    Learnt,
    Moved,
    Passed,
    Published,
    Released,
    Retired,
)
from concordant.causal.state import SubscriberState
from concordant.causal.vector import copied, join
from concordant.machine.effects import Delivery
from concordant.machine.inputs import Record
from concordant.machine.saved import saved_state

Given = Carried | Gap | Delivery
"""What was delivered: an event, a gap, or either of them from a snapshot."""


def recovered(
    state: SubscriberState, records: tuple[Record, ...], *, total: bool
) -> tuple[SubscriberState, list[Given], int]:
    """The state, what was delivered and is still known, and how much was before that."""
    data, saved, records = saved_state(records)
    delivered: list[Given] = []
    if saved is not None:
        state = msgspec.msgpack.decode(data, type=SubscriberState)
        delivered += saved.untaken
    inbox = state.inbox
    for record in records:
        match record:
            case Published():
                state.outbox.add(record.event, record.topics)
            case Learnt():
                state.learn(record.context, record.round)
            case Accepted():
                state.accept(record.number, record.context, record.round)
            case Moved():
                state.session = record.session
                state.move(record.topics, record.joined_at, total=total)
            case Passed():
                inbox.passed(record.carried, silent=record.silent)
                if not record.silent:
                    join(state.context, record.carried.context)
                    if total:
                        state.line.put(record.carried)
                    else:
                        delivered.append(record.carried)
            case Released():
                delivered += state.line.release(record, inbox.topics)
            case Caught():
                inbox.floor = copied(record.last)
                state.finish(total=total)
            case Joined():
                for topic in record.topics:
                    inbox.joining.pop(topic, None)
            case Retired():
                state.outbox.retire(record.source)
            case Gap():
                delivered.append(record)
    return state, delivered, saved.taken_count if saved is not None else 0
