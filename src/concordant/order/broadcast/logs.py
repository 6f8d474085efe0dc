"""The logs that a replicated sequencer can stand on."""

from __future__ import annotations

from concordant.order import replication
from concordant.order.broadcast import paxos
from concordant.order.broadcast.replicated import LogKind

EPOCHS = LogKind(replication.Replica, replication.Replica, replication.MESSAGES)
"""One leader per epoch, who takes over the longest log whole."""

PAXOS = LogKind(paxos.PaxosLog, paxos.PaxosLog, paxos.MESSAGES)
"""Multi-Paxos: each position is agreed on by itself."""

REPLICAS = ("q1", "q2", "q3")
"""What simulated replicas are called."""
