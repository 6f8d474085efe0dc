"""The cost of an event against the length of the queue that it is compared with.

A queue of topic A is filled with events that the probes never match, and a stream of blocks keeps
its length while it goes on. Each block has the same number of relations, which is checked.

`prefix`: eight A arrive, seven B that nothing fits, and one B that fits the eighth queued A and so
removes eight. `matched`: an A arrives and the B that fits only it, at the far end of the queue; a B
that nothing fits waits until the A comes that fits it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bench import events
from bench.kernels import chunks, plan_of, verify
from bench.measure import growth, interleaved, timed
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.correlate.columns import Array, Batch
from concordant.correlate.kernel import Kernel
from concordant.correlate.plan import Plan
from concordant.model.kind import Kind

A, B = 0, 1
HEAVY = 1 << 40
"""Queued events have at least this value (for `<`; the other signs turn it around)."""

EVENTS_MAX = 1 << 17
EVENTS_MIN = 64
FILL_ROWS = 1 << 17
ROUNDS_MIN = 17
"""Two cycles of letting go of old rows with a million queued: half a cycle would say too little."""


@dataclass(frozen=True)
class Question:
    """One binary predicate under one policy."""

    op: str
    match: str
    consume: str

    @property
    def name(self) -> str:
        return f"A.x {self.op} B.x, {self.match} {self.consume}"

    @property
    def text(self) -> str:
        return f"A.x {self.op} B.x match {self.match} consume {self.consume}"

    @property
    def blocks(self) -> Callable[[Question, int, int, int], tuple[Array, Array]]:
        return _prefix_blocks if self.consume == "prefix" else _matched_blocks

    @property
    def block_events(self) -> int:
        return 16 if self.consume == "prefix" else 4

    @property
    def block_relations(self) -> int:
        return 1 if self.consume == "prefix" else 2


QUESTIONS = [
    *(Question(op, "first", consume) for consume in ("prefix", "matched") for op in "<>="),
    Question("<", "recent", "matched"),
    Question("=", "recent", "matched"),
]


def _scatter(numbers: Array) -> Array:
    """Distinct values below 2**40 in no order, one per number."""
    return (numbers * 0x9E3779B1) & (HEAVY - 1)


def _queued(question: Question, numbers: Array) -> Array:
    """The values of the queued A events of these numbers; every eighth is lower than the rest."""
    values = HEAVY + _scatter(numbers)
    if question.op != "=":
        values += np.where(numbers % 8 == 7, 0, HEAVY)
    return values


def _signed(question: Question, values: Array) -> Array:
    return -values if question.op == ">" else values


def _prefix_blocks(question: Question, done: int, count: int, length: int) -> tuple[Array, Array]:
    """Topics and values of blocks; the queue begins at number 8 * done."""
    refill = 8 * done + length + np.arange(8 * count).reshape(count, 8)
    topics = np.tile(np.array([A, B] * 8), (count, 1))
    values = np.empty((count, 16), np.int64)
    values[:, 0::2] = _queued(question, refill)
    values[:, 1::2] = np.arange(8) + 1
    fitting = refill[:, 7] - length
    values[:, 15] = _queued(question, fitting) if question.op == "=" else 2 * HEAVY
    return topics.ravel(), _signed(question, values.ravel())


def _matched_blocks(question: Question, done: int, count: int, length: int) -> tuple[Array, Array]:
    """The same; what is queued beforehand stays, whatever its length."""
    del length
    light = 10 + 4 * (_scatter(done + np.arange(count)) >> 3)
    topics = np.tile(np.array([A, B, B, A]), (count, 1))
    fits = 0 if question.op == "=" else 1
    values = np.stack([light, light + fits, light + 2 + fits, light + 2], axis=1)
    return topics.ravel(), _signed(question, values.ravel())


def _batch(topics: Array, values: Array) -> Batch:
    return events.make("AB", topics, {("x", Kind.INT): events.ints(values)})


@dataclass
class Stream:
    """A kernel with a queue of a given length, and the endless stream that keeps it so."""

    question: Question
    plan: Plan
    length: int
    budget_seconds: float
    kernel: Kernel = field(init=False)
    done_events: int = 0
    done_seconds: float = 0.0
    _blocks_done: int = 0
    _try_rows: int = EVENTS_MIN // 8
    _rows: int = 0

    def __post_init__(self) -> None:
        self.kernel = Kernel(self.plan)
        for part in chunks(self.fill(), FILL_ROWS):
            self.kernel.step(part)

    def fill(self) -> Batch:
        """The events that are queued beforehand."""
        numbers = np.arange(self.length)
        values = _signed(self.question, _queued(self.question, numbers))
        return _batch(np.full(self.length, A), values)

    def next_blocks(self, rows: int) -> Batch:
        """At least one block, about so many events."""
        count = max(1, rows // self.question.block_events)
        done = self._blocks_done
        self._blocks_done += count
        return _batch(*self.question.blocks(self.question, done, count, self.length))

    def round(self, rows_max: int) -> float:
        """Seconds per event of one round, as many events as the budget allows."""
        while not self._rows:
            self._try_rows = min(8 * self._try_rows, rows_max)
            # The better of two: a first probe may build an index, and a pause is no cost.
            seconds = min(self._timed(self._try_rows) for _ in range(2))
            if self._try_rows == rows_max or 8 * seconds > self.budget_seconds:
                self._rows = self._try_rows
                self._run_in()
        rows = self._rows
        seconds = self._timed(rows)
        self.done_seconds += seconds
        self.done_events += rows
        return seconds / rows

    def _run_in(self) -> None:
        """Until old rows were let go of once: memory that is new to a process costs many times what
        is used again, and a stream that goes on pays for it once."""
        for _ in range(2 * self.length // self._rows):
            self._timed(self._rows)

    def _timed(self, rows: int) -> float:
        batch = self.next_blocks(rows)
        found = 0

        def run() -> None:
            nonlocal found
            found = len(self.kernel.step(batch))

        seconds = timed(run)
        expected = len(batch) // self.question.block_events * self.question.block_relations
        assert found == expected, f"{self.question.name}: {found} relations, not {expected}"
        return seconds * rows / len(batch)


def _verify(question: Question, plan: Plan) -> None:
    """A short queue and some blocks, against the clear engine."""
    stream = Stream(question, plan, 40, 1.0)
    whole = Batch.concat([stream.fill(), stream.next_blocks(320)])
    verify(plan, whole, wanted=20)


def run(size: Size) -> Section:
    """Nanoseconds per event against queue length, for one binary predicate."""
    lengths = size.powers(2, 3, 4, 5, 6)
    rows_max = EVENTS_MAX if size.name == "full" else EVENTS_MAX // 8
    rows: list[Row] = []
    goals = []
    for question in QUESTIONS:
        plan = plan_of(question.text, _batch(np.array([A]), np.array([1])).topics)
        _verify(question, plan)
        # A multiple of eight, for the pattern of the blocks.
        streams = {
            str(length): Stream(question, plan, length // 8 * 8 + 8, size.budget_seconds)
            for length in lengths
        }
        taken = interleaved(
            max(size.rounds, ROUNDS_MIN),
            {name: partial(stream.round, rows_max) for name, stream in streams.items()},
        )
        # The mean over all rounds: letting go of old rows is rare, and belongs to the cost.
        cost = {name: s.done_seconds / s.done_events for name, s in streams.items()}
        for length in lengths:
            rows.append(
                {
                    "predicate": question.name,
                    "length": length,
                    "ns": 1e9 * cost[str(length)],
                    "spread": taken[str(length)].spread,
                    "ratio": cost[str(length)] / cost[str(lengths[0])],
                    "events": streams[str(length)].done_events,
                }
            )
        goals.append(
            Goal(
                f"queue length {lengths[0]:,} to {lengths[-1]:,}: {question.name}",
                "within 2x",
                f"{growth([cost[str(length)] for length in lengths]):.2f}x",
            )
        )
    return Section(
        "queues",
        "Queue length",
        "One predicate `A.x op B.x`; the queue of A keeps its length while B events probe it, most "
        "of them in vain or with the only match far away. Mean over all rounds, so that rare work "
        "(letting go of old rows) counts, after each stream has done that once. Ratio: "
        "to the shortest queue of the same predicate.",
        (
            Column("predicate", "predicate"),
            Column("length", "queue length", "count"),
            Column("ns", "ns/event", "ns"),
            Column("spread", "spread", "percent"),
            Column("ratio", "ratio", "ratio"),
            Column("events", "events measured", "count"),
        ),
        rows,
        goals,
        Plot("length", "ns", "events in the queue of A", "ns per event", "predicate"),
    )
