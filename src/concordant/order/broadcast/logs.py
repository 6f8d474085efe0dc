"""The baselines with several servers, as data: what a server is, what it says, what it keeps.

Whoever hosts machines makes servers and clients from here and need not know which protocol it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from concordant.machine.contract import Machine
from concordant.machine.inputs import Message, Record
from concordant.order import replication
from concordant.order.broadcast import paxos, token
from concordant.order.broadcast.replicated import Leader, LogKind, ReplicatedSequencer
from concordant.order.broadcast.sequencer import Acknowledged, Settled
from concordant.order.broadcast.token import TokenMember
from concordant.order.client import ClientOptions
from concordant.order.replication import ReplicationOptions

REPLICAS = ("q1", "q2", "q3")
"""What the servers are called where nobody names them."""

EPOCHS = LogKind(replication.Replica, replication.Replica, replication.MESSAGES)
"""One leader per epoch, who takes over the longest log whole."""

PAXOS = LogKind(paxos.PaxosLog, paxos.PaxosLog, paxos.MESSAGES)
"""Multi-Paxos: each position is agreed on by itself."""


Serve = Callable[[str, Sequence[str], ClientOptions, ReplicationOptions], Machine]
"""A server with its address, the addresses of all, and options."""


class Baseline(msgspec.Struct, frozen=True):
    """One way to total order."""

    server: Serve
    messages: tuple[type[Message], ...]
    """Beside those of numbered streams."""
    records: tuple[type[Record], ...]
    """Beside those of clients."""


def _replicated(kind: LogKind) -> Serve:
    return lambda name, replicas, options, replicated: ReplicatedSequencer(
        name, replicas=replicas, kind=kind, options=options, replication=replicated
    )


BASELINES = {
    "replicated": Baseline(
        _replicated(EPOCHS),
        (*replication.MESSAGES, Leader, Acknowledged),
        (*replication.RECORDS, Settled),
    ),
    "paxos": Baseline(
        _replicated(PAXOS), (*paxos.MESSAGES, Leader, Acknowledged), (*paxos.RECORDS, Settled)
    ),
    "token": Baseline(
        lambda name, ring, options, _: TokenMember(name, ring=ring, options=options),
        (*token.MESSAGES, Leader, Acknowledged),
        (*token.RECORDS, Settled),
    ),
}
