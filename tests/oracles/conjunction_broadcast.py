"""Processes that broadcast by algorithm 2.2, over the weakest layer that the thesis allows.

All correct processes deliver the same relations, in an order that differs from process to process,
and a minority may stop at any moment. What lemmas 7 to 11 promise of it is judged at the end.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

from concordant.order.broadcast.from_conjunctions import Sent, TotalOrder, majority

COUNTS = (1, 2, 3, 5)
"""Processes in a run."""


@dataclass
class Layer:
    """Conjunction multicast: messages of one topic are matched by the majority, first come first
    served, and each process gets every relation, when chance says."""

    names: tuple[str, ...]
    rng: Random
    queue: list[Sent] = field(default_factory=list)
    owed: dict[str, list[tuple[Sent, ...]]] = field(default_factory=dict)

    def multicast(self, sent: Sent) -> None:
        self.queue.append(sent)
        size = majority(len(self.names))
        if len(self.queue) == size:
            relation = tuple(self.queue)
            self.queue = []
            for name in self.names:
                self.owed.setdefault(name, []).append(relation)

    def some_relation(self, name: str) -> tuple[Sent, ...] | None:
        owed = self.owed.get(name)
        return owed.pop(self.rng.randrange(len(owed))) if owed else None


@dataclass
class Run:
    """Processes that broadcast, until everything is delivered to those that go on."""

    count: int
    seed: int
    crashes: int = 0
    broadcast: dict[str, list[int]] = field(default_factory=dict)
    delivered: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    reordered: int = 0
    correct: tuple[str, ...] = ()

    def play(self) -> Run:
        rng = Random(self.seed)
        names = tuple(f"p{n}" for n in range(1, self.count + 1))
        layer = Layer(names, rng)
        processes = {name: TotalOrder(name, names) for name in names}
        self.correct = names[self.crashes :]
        self.delivered = {name: [] for name in names}
        self.broadcast = {name: [] for name in names}
        up = list(names)
        for name in names:
            for number in range(rng.randint(0, 6)):
                processes[name].broadcast({"number": number})
                self.broadcast[name].append(number)
        for step in range(4_000):
            if step > 10 and len(up) > len(self.correct) and rng.random() < 0.1:
                up.remove(next(name for name in up if name not in self.correct))
            name = rng.choice(up)
            process = processes[name]
            wanted = any(processes[one].waits or processes[one].waiting for one in up)
            sent = process.next_sent(wanted=wanted)
            if sent is not None:
                layer.multicast(sent)
            relation = layer.some_relation(name)
            if relation is not None:
                found = process.relation(relation)
                self.reordered += bool(process.held)
                for one in found:
                    assert one.content is not None
                    self.delivered[name].append((one.process, int(one.content["number"])))
        return self


def drawn(seed: int) -> Run:
    """A run from a seed; in every second one a minority stops."""
    count = COUNTS[seed // 2 % len(COUNTS)]
    return Run(count, seed, crashes=(count - 1) // 2 if seed % 2 else 0)


def broken(run: Run) -> str:
    """The lemma that does not hold of a run, if one does not."""
    for name, sequence in run.delivered.items():
        if max(Counter(sequence).values(), default=1) > 1:
            return f"lemma 7: {name} delivered something twice"
        if any(number not in run.broadcast[process] for process, number in sequence):
            return f"lemma 8: {name} delivered what nobody broadcast"
    for name in run.correct:
        mine = [number for process, number in run.delivered[name] if process == name]
        if mine != run.broadcast[name]:
            return f"lemma 9: {name} broadcast {run.broadcast[name]} and delivered {mine}"
        if set(run.delivered[name]) != set(run.delivered[run.correct[0]]):
            return f"lemma 10: {name} and {run.correct[0]} delivered different things"
    whole = max(run.delivered.values(), key=len)
    for name, sequence in run.delivered.items():  # of those that stopped as well
        if sequence != whole[: len(sequence)]:
            return f"lemma 11: {name} delivered in another order"
    return ""
