"""Planted bugs in the baselines of total order; the swarm has to find each.

They are in the form of `simulation_bugs`, so that the same search finds them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from concordant.machine.effects import Effect, Persist
from concordant.machine.instant import Instant
from concordant.order.broadcast import replicated
from concordant.order.broadcast.logs import REPLICAS
from concordant.order.broadcast.paxos import Ballotted, PaxosLog, Propose, Votes
from concordant.order.broadcast.replicated import ReplicatedSequencer
from concordant.order.broadcast.token import Token, TokenMember
from concordant.order.replication import Outbox, Replica
from concordant.order.streams import Numbered
from concordant.sim.scenario import Fault, Scenario
from tests.detection.simulation_bugs import Plant, SimulationBug

BROADCAST_BUGS: list[SimulationBug] = []

_ORDER = ("Total Order, strict", "No Duplication", "Validity", "Drained", "FIFO", "Causal")


def stormy(scenario: Scenario) -> Scenario:
    """With many crashes of the replicas, so that they change their leader again and again."""
    faults = tuple(
        Fault("pause" if n % 3 == 2 else "crash", 15 + 22 * n, 35, REPLICAS[n % 3 if n % 2 else 0])
        for n in range(10)
    )
    load = msgspec.structs.replace(scenario.workload, rate_per_s=150.0)
    # What is on its way is seen by nobody: a packet must not take as long as a run has to be quiet.
    network = msgspec.structs.replace(
        scenario.network, bytes_per_s=10 * scenario.network.bytes_per_s
    )
    return msgspec.structs.replace(
        scenario,
        faults=(*scenario.faults, *faults),
        duration_ms=250,
        heal_ms=8_000,
        step_count_max=30_000,
        workload=load,
        network=network,
    )


def bug(name: str, protocol: str, *breaks: str) -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        found = SimulationBug(name, protocol, (*breaks, "Invariants"), plant, sharpen=stormy)
        BROADCAST_BUGS.append(found)
        return plant

    return add


@bug("a sequencer with replicas tells what is not committed", "replicated", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    def committed(self: Replica, start: int) -> list[bytes]:
        end = self.length if self.leading else self.commit
        return self.entries[start - self.base : end - self.base]

    patch.setattr(Replica, "committed", committed)


@bug("a new leader of the replicas keeps its own log", "replicated", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = Replica._adopt

    def adopt(self: Replica, epoch: int, base: int, state: bytes, entries: Any, *rest: Any) -> None:
        if self.standing:
            base, state, entries = self.base, self.state, tuple(self.entries)
        correct(self, epoch, base, state, entries, *rest)

    patch.setattr(Replica, "_adopt", adopt)


@bug("an event that was repeated to a new leader gets two positions", "replicated", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    def apply(self: Any, entry: bytes) -> bool:
        ordered = replicated._decoder.decode(entry)
        self.last[ordered.publisher] = max(ordered.n, self.last.get(ordered.publisher, 0))
        self.log.append(ordered.event)
        return True

    patch.setattr(replicated._Order, "apply", apply)
    correct = ReplicatedSequencer._turn

    def turn(self: Any) -> None:
        correct(self)
        self._state.logged = {}

    patch.setattr(ReplicatedSequencer, "_turn", turn)


@bug("a Paxos leader proposes without looking at what was accepted", "paxos", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = PaxosLog._votes

    def votes(self: PaxosLog, ballot: int, start: int) -> Votes:
        found = correct(self, ballot, start)
        return Votes(ballot, (), found.base, found.state, found.first, found.values)

    patch.setattr(PaxosLog, "_votes", votes)


@bug("a Paxos acceptor forgets in a crash", "paxos", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = PaxosLog.recall

    def recall(self: PaxosLog, record: Any) -> None:
        if isinstance(record, Ballotted):
            correct(self, record)

    patch.setattr(PaxosLog, "recall", recall)


@bug("a Paxos acceptor accepts from any leader", "paxos", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = PaxosLog._proposed

    def proposed(self: PaxosLog, now: Instant, source: int, message: Propose, out: Outbox) -> None:
        self.promised = min(self.promised, message.ballot)
        correct(self, now, source, message, out)

    patch.setattr(PaxosLog, "_proposed", proposed)


@bug("one acceptance decides", "paxos", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    def decide(self: PaxosLog) -> None:
        while self.commit in self.accepts:
            del self.accepts[self.commit]
            self.values.append(self.votes[self.commit].value)

    patch.setattr(PaxosLog, "_decide", decide)


@bug("a token that comes twice is held twice", "token", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = TokenMember._receive

    def receive(
        self: Any, now: Instant, source: str, message: Any, cause: int, out: list[Effect]
    ) -> None:
        if isinstance(message, Token):
            self._state.seen = message.number - 1
        correct(self, now, source, message, cause, out)

    patch.setattr(TokenMember, "_receive", receive)


@bug("a token is on its way before it is durable", "token", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = TokenMember.handle

    def handle(self: Any, now: Instant, given: Any) -> Sequence[Effect]:
        found = correct(self, now, given)
        return sorted(found, key=lambda one: isinstance(one, Persist))

    patch.setattr(TokenMember, "handle", handle)


@bug("a token does not say what was placed", "token", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = TokenMember._hold

    def hold(self: Any, now: Instant, held: Token, cause: int, out: list[Effect]) -> None:
        last = {} if held.number % 4 == 3 else held.last
        correct(self, now, Token(held.number, held.position, last), cause, out)

    patch.setattr(TokenMember, "_hold", hold)


@bug("a lost token is never sent again", "token", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = TokenMember._wake

    def wake(self: Any, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        if name == "again":
            self._state.passed = None
        correct(self, now, name, cause, out)

    patch.setattr(TokenMember, "_wake", wake)


@bug("a replica answers with what it has not heard to be committed", "replicated", *_ORDER)
def _(patch: pytest.MonkeyPatch) -> None:
    correct = ReplicatedSequencer._receive

    def receive(self: Any, now: Instant, source: str, message: Any) -> None:
        correct(self, now, source, message)
        if not isinstance(message, Numbered):
            self._log.commit = max(self._log.commit, self._log.length)

    patch.setattr(ReplicatedSequencer, "_receive", receive)
