"""Wilkin 2015, algorithm 2.2 and lemmas 7 to 11: total order broadcast from conjunctions.

The layer below is the weakest that the thesis allows: all correct processes deliver the same
relations, in an order that differs from process to process. A minority may stop at any moment.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random

import pytest

from concordant.errors import PeerError
from concordant.order.broadcast.from_conjunctions import Sent, TotalOrder, majority


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


RUNS = [
    Run(count, seed, crashes=(count - 1) // 2 if seed % 2 else 0).play()
    for count in (1, 2, 3, 5)
    for seed in range(12)
]


def test_lemma_7_nothing_is_delivered_twice() -> None:
    for run in RUNS:
        for sequence in run.delivered.values():
            assert max(Counter(sequence).values(), default=1) == 1


def test_lemma_8_nothing_is_delivered_that_was_not_broadcast() -> None:
    for run in RUNS:
        for sequence in run.delivered.values():
            assert all(number in run.broadcast[name] for name, number in sequence)


def test_lemma_9_what_a_correct_process_broadcasts_it_delivers() -> None:
    for run in RUNS:
        for name in run.correct:
            mine = [number for process, number in run.delivered[name] if process == name]
            assert mine == run.broadcast[name]


def test_lemma_10_correct_processes_deliver_the_same() -> None:
    for run in RUNS:
        first = set(run.delivered[run.correct[0]])
        assert all(set(run.delivered[name]) == first for name in run.correct)


def test_lemma_11_all_processes_deliver_in_one_order() -> None:
    for run in RUNS:
        whole = max(run.delivered.values(), key=len)
        for sequence in run.delivered.values():  # of those that stopped as well
            assert sequence == whole[: len(sequence)]


def test_relations_did_come_in_different_orders() -> None:
    assert sum(run.reordered for run in RUNS) > 100


def test_figure_2_3_a_relation_out_of_sequence_waits() -> None:
    names = ("p1", "p2", "p3")
    first = (Sent("p1", 1, {"m": "a"}), Sent("p2", 1, {"m": "b"}))
    second = (Sent("p2", 2, {"m": "c"}), Sent("p3", 1, {"m": "d"}))
    p1 = TotalOrder("p1", names)
    assert p1.relation(second) == []
    assert [one.content for one in p1.relation(first)] == [{"m": one} for one in "abcd"]


def test_only_one_message_of_a_process_is_under_correlation() -> None:
    process = TotalOrder("p1", ("p1", "p2", "p3"))
    process.broadcast({"m": 1})
    process.broadcast({"m": 2})
    assert process.next_sent() == Sent("p1", 1, {"m": 1})
    assert process.next_sent() is None
    process.relation((Sent("p1", 1, {"m": 1}), Sent("p2", 1)))
    assert process.next_sent() == Sent("p1", 2, {"m": 2})


def test_an_idle_process_keeps_company_only_when_it_is_wanted() -> None:
    process = TotalOrder("p1", ("p1", "p2", "p3"))
    assert process.next_sent() is None
    assert process.next_sent(wanted=True) == Sent("p1", 1)


def test_a_relation_of_no_majority_is_refused() -> None:
    process = TotalOrder("p1", ("p1", "p2", "p3"))
    for bad in ((Sent("p1", 1),), (Sent("p1", 1), Sent("p1", 2)), (Sent("p1", 1), Sent("x", 1))):
        with pytest.raises(PeerError):
            process.relation(bad)
    assert process == TotalOrder("p1", ("p1", "p2", "p3"))
