"""What a step found: relations as numbers, turned into objects only when asked.

Row numbers mean events through `Rows`, which keeps the batches that queues still refer to.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from concordant.correlate.columns import Batch
from concordant.correlate.plan import Plan
from concordant.correlate.state import partition_value
from concordant.model.event import Event
from concordant.model.relation import Relation
from concordant.model.topic import Schemas

Words = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_PIECE_ROWS_MIN = 1 << 16
"""Pieces with fewer rows are put together when rows are let go: a piece costs a step each time."""


@dataclass(frozen=True)
class Selected:
    """Some rows of a batch, or all of them."""

    batch: Batch
    selection: Words | None
    ours: bool = False
    """Is the batch a copy made here, so that it holds no memory of somebody's larger table?"""

    def __len__(self) -> int:
        return len(self.batch) if self.selection is None else len(self.selection)

    def event(self, place: int) -> Event:
        return self.batch.event(place if self.selection is None else int(self.selection[place]))

    def take(self, places: Words) -> Batch:
        return self.batch.take(places if self.selection is None else self.selection[places])

    def keep(self, places: Words) -> Selected:
        """Only these. Copied, unless it is a copy already of which at least half is still meant."""
        if not self.ours or 2 * len(places) < len(self.batch):
            return Selected(self.take(places), None, ours=True)
        if len(places) == len(self):
            return self
        selection = places if self.selection is None else self.selection[places]
        return Selected(self.batch, selection, ours=True)

    def whole(self) -> Batch:
        return self.batch if self.selection is None else self.batch.take(self.selection)


@dataclass
class Rows:
    """Rows of batches and single events, numbered through. It grows at the end only, so that the
    numbers of what was found stay valid."""

    topics: Schemas
    count: int = 0
    starts: list[int] = field(default_factory=list)
    pieces: list[Selected | list[Event]] = field(default_factory=list)

    def append(self, batch: Batch, selection: Words | None) -> None:
        """Rows of a batch: those selected, or all."""
        self._append(Selected(batch, selection))

    def _append(self, piece: Selected) -> None:
        self.starts.append(self.count)
        self.pieces.append(piece)
        self.count += len(piece)

    def append_event(self, event: Event) -> None:
        last = self.pieces[-1] if self.pieces else None
        if isinstance(last, list):
            last.append(event)
        else:
            self.starts.append(self.count)
            self.pieces.append([event])
        self.count += 1

    def event(self, row: int) -> Event:
        index = bisect_right(self.starts, row) - 1
        piece = self.pieces[index]
        place = row - self.starts[index]
        return piece[place] if isinstance(piece, list) else piece.event(place)

    def batches(self) -> list[Batch]:
        """All rows as batches."""
        return [
            Batch.of(one, self.topics.values()) if isinstance(one, list) else one.whole()
            for one in self.pieces
        ]

    def take(self, rows: Words) -> Batch:
        """The given rows (ascending, at least one) as one batch."""
        found: list[Batch] = []
        for start, piece in zip(self.starts, self.pieces, strict=True):
            low, high = np.searchsorted(rows, (start, start + len(piece)))
            if low < high:
                mine = rows[low:high] - start
                found.append(
                    self._batch(piece, mine) if isinstance(piece, list) else piece.take(mine)
                )
        return Batch.concat(found)

    def keep(self, live: Flags) -> Rows:
        """Only the rows that are alive, numbered anew from 0. Small pieces are put together."""
        found = Rows(self.topics)
        small: list[Batch] = []
        for start, piece in zip(self.starts, self.pieces, strict=True):
            mine = np.flatnonzero(live[start : start + len(piece)])
            if not len(mine):
                continue
            if isinstance(piece, list):
                small.append(self._batch(piece, mine))
                continue
            kept = piece.keep(mine)
            if len(kept) < _PIECE_ROWS_MIN:
                small.append(kept.whole())
            else:
                found._append_together(small)
                found._append(kept)
        found._append_together(small)
        return found

    def _batch(self, events: list[Event], places: Words) -> Batch:
        return Batch.of([events[place] for place in places], self.topics.values())

    def _append_together(self, batches: list[Batch]) -> None:
        """Batches of our own as one piece; the list is empty afterwards."""
        if batches:
            self._append(Selected(Batch.concat(batches), None, ours=True))
            batches.clear()


@dataclass(frozen=True)
class Records:
    """Relations of one stage as numbers, in order of delivery."""

    row: Words
    """The row that completed each."""
    subscription: Words
    """Its place among the stage's subscriptions."""
    conjunction: Words
    """Its place in canonical order."""
    ordinal: Words
    position: Words
    at: Words
    """The place in the total order of the event that completed it."""
    start: Words
    """Where its events begin in `events`; one more at the end."""
    events: Words
    """Rows of the events in slot order, relation after relation."""
    rows: Rows
    taken: Words
    """For each, which row of the step's batch completed it."""

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Found:
    """The relations that one step completed, in order."""

    plan: Plan
    stages: Sequence[Records]
    first: Sequence[int]
    """The plan's index of each stage's first subscription."""
    base: Batch
    base_position: int
    """The place in the total order of the base batch's first row."""
    order: Sequence[tuple[int, int]] | None = None
    """(stage, record) in order of delivery; None where there is one stage."""

    def __len__(self) -> int:
        return sum(map(len, self.stages))

    def __iter__(self) -> Iterator[Relation]:
        if self.order is None:
            return (self.relation(0, i) for i in range(len(self)))
        return (self.relation(stage, i) for stage, i in self.order)

    def relation(self, stage: int, index: int) -> Relation:
        """One record as a relation."""
        records = self.stages[stage]
        plan = self.plan.subscriptions[self.first[stage] + int(records.subscription[index])]
        completing = records.rows.event(int(records.row[index]))
        events = records.events[records.start[index] : records.start[index + 1]]
        base = self.base.event_key(int(records.at[index]) - self.base_position)
        return Relation(
            plan.name,
            plan.conjunctions[int(records.conjunction[index])].number,
            partition_value(completing, plan.subscription.partition_by),
            int(records.ordinal[index]),
            int(records.position[index]),
            tuple(records.rows.event(int(row)) for row in events),
            base,
        )
