"""One stage of the kernel: subscriptions that read the same stream, with their state.

Holds the arena (queues, partitions, counters), the encoded columns of the rows that queues still
hold, and the rows themselves. It grows and compacts; what it computes is decided by the compiled
loops alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from concordant.correlate.columns import Array, Batch, Column
from concordant.correlate.compiled import compaction, encode, loop
from concordant.correlate.compiled import layout as at
from concordant.correlate.compiled.scratch import SCRATCH_SIZE
from concordant.correlate.found import Records, Rows, Words
from concordant.correlate.plan import SubscriptionPlan
from concordant.correlate.program import compile_program
from concordant.correlate.saved import SavedBatch, SavedStage
from concordant.correlate.state import Counters
from concordant.correlate.writer import Dictionary, encoded_float
from concordant.model.event import Event
from concordant.model.kind import RESERVED, Kind
from concordant.model.topic import Schemas, Topic

SEARCH_BUDGET = 100_000
"""Candidates a search may look at before it is counted and warned about; results never change."""

SCANNED_COUNT_MAX = 64
"""Queued events that a search scans one by one; for more it builds an index."""

_ARENA_WORDS_MIN = 1 << 12
_OUT_COUNT_MIN = 1 << 10
"""Relations, and events of theirs, for which there is always room."""
_ROWS_PER_RELATION = 2
_EVENTS_PER_RELATION = 3
"""Of a batch there is room for so many relations at once; where it has more, the room grows."""
_COPIED_SHARE = 8
"""Output that fills less than this part of its array is copied, and the array used again."""
_COMPACT_ROWS_MIN = 1 << 16
"""Rows that may be kept beyond twice the live ones: below that, compaction costs more."""
_MAPPING_COUNT_MAX = 16
"""Dictionaries of columns that are remembered: those of one source come again and again."""
_LARGE = 1 << 19
_WORD = 8
_NULL, _FLOAT, _CODE = at.SOURCE_NULL, at.SOURCE_FLOAT, at.SOURCE_CODE
_HOW = {
    Kind.NULL: _NULL,
    Kind.BOOL: at.SOURCE_BOOL,
    Kind.INT: at.SOURCE_INT,
    Kind.TIME: at.SOURCE_INT,
    Kind.POSITION: at.SOURCE_INT,
    Kind.FLOAT: _FLOAT,
    Kind.STRING: _CODE,
}
"""How a kind's values become words."""
_NOTHING = np.empty(0, np.int64)


class Stage:
    """The state of subscriptions of one depth."""

    def __init__(
        self,
        subscriptions: Sequence[SubscriptionPlan],
        schemas: Schemas,
        dictionary: Dictionary,
        *,
        time_ordered: bool,
        budget: int,
        scanned: int,
    ) -> None:
        self.subscriptions = subscriptions
        self._schemas = schemas
        self._dictionary = dictionary
        self._program = compile_program(
            subscriptions,
            schemas,
            dictionary,
            time_ordered=time_ordered,
            budget=budget,
            scanned=scanned,
        )
        self._control = np.zeros(at.CONTROL_SIZE, np.int64)
        self._arena = np.zeros(max(_ARENA_WORDS_MIN, 2 * self._program.root_end), np.int64)
        self._arena[at.ARENA_BUMP] = self._program.root_end
        for root in self._program.roots:
            self._arena[root + at.ROOT_EXPIRED_BEFORE] = at.LONG_AGO
        for root in self._program.lined:
            self._arena[root + at.ROOT_LINED] = 1
        self._cells = np.empty((0, self._program.column_count), np.int64)
        self._row_count = 0
        self._rows = Rows(schemas)
        self._compact_at = _COMPACT_ROWS_MIN
        self._rank = np.zeros(1, np.int64)
        self._ranked_count = 0
        self._mappings: list[tuple[tuple[str, ...], Words]] = []
        self._scratch = np.zeros(SCRATCH_SIZE, np.int64)
        self._candidates = np.zeros(self._program.candidate_count_max, np.int64)
        self._out, self._out_rows = _output(_OUT_COUNT_MIN, _OUT_COUNT_MIN)
        # One more for the rows of topics that nobody reads.
        self._topic_counts = np.zeros(len(self._program.topics) + 1, np.int64)
        self._code = np.zeros(1, np.int64)
        self._codes = {name: code for code, name in enumerate(self._program.topics)}
        self._recipes = {name: self._recipe(schemas[name]) for name in self._program.topics}
        self._publish()

    def _recipe(self, topic: Topic) -> list[tuple[int, str, int, bool]]:
        """What of a single event goes into which column, encoded how, and is the name reserved?

        Null is what the topic does not have, or has of another kind.
        """
        found = [
            (column, name, _HOW[kind if topic.kind(name) is kind else Kind.NULL], name in RESERVED)
            for (name, kind), column in self._program.inputs.items()
        ]
        return [*found, *((column, "", at.SOURCE_NULL, False) for column in self._program.numbers)]

    def _publish(self) -> None:
        """Tell the loops where the arrays are; after every change of one of them."""
        control = self._control
        control[at.CONTROL_WIDTH] = self._program.column_count
        control[at.CONTROL_OUT_LIMIT] = self._out_limit
        control[at.CONTROL_PLAN] = self._program.words.ctypes.data
        control[at.CONTROL_ARENA] = self._arena.ctypes.data
        control[at.CONTROL_CELLS] = self._cells.ctypes.data
        control[at.CONTROL_RANK] = self._rank.ctypes.data
        control[at.CONTROL_SCRATCH] = self._scratch.ctypes.data
        control[at.CONTROL_OUTPUT] = self._out.ctypes.data
        control[at.CONTROL_OUT_ROWS_LIMIT] = len(self._out_rows)
        control[at.CONTROL_OUTPUT_ROWS] = self._out_rows.ctypes.data
        control[at.CONTROL_CANDIDATES] = self._candidates.ctypes.data
        self._arena[at.ARENA_LIMIT] = len(self._arena)
        # Single words are written through views: numpy would box each of them.
        self._words = self._cells.reshape(-1).data
        self._doubles = self._cells.view(np.float64).reshape(-1).data
        control[at.CONTROL_CODE] = self._code.ctypes.data
        control[at.CONTROL_COUNTS] = self._topic_counts.ctypes.data

    # --- a batch ------------------------------------------------------------------------------

    def step(self, batch: Batch, first: int, positions: Array | None = None) -> Records:
        """Take rows in their order.

        `positions` are their places in the total order, or they stand there one after the other
        from `first` on.
        """
        if self._row_count > self._compact_at:
            self._compact()
        start = self._row_count
        unread = len(self._codes)
        mapping = np.array([self._codes.get(name, unread) for name in batch.topic_names], np.int64)
        codes = np.empty(len(batch) + 1, np.int64)
        if unread in mapping:
            selection = np.empty(len(batch) + 1, np.int64)
            count = encode.select(batch.topic, mapping, self._topic_counts, selection, codes)
            selection = selection[: 0 if count == len(batch) else count]
        else:
            selection, count = _NOTHING, len(batch)
            encode.select_all(batch.topic, mapping, self._topic_counts, codes)
        self._reserve(start + count)
        self._encode(batch, first, positions, selection, count)
        if self._program.sieved:
            selection = selection if len(selection) else np.arange(len(batch))
            count = encode.sieve(self._program.words, codes, selection, count, self._cells, start)
            selection = selection[:count]
        self._row_count = start + count
        self._rows.append(batch, selection if count < len(batch) else None)
        self._order_strings()
        self._control[at.CONTROL_CODES] = codes.ctypes.data - _WORD * start
        relations = count // _ROWS_PER_RELATION
        self._reserve_output(relations, _EVENTS_PER_RELATION * relations)
        self._run(start, start + count, None)
        return self._records(start, selection, first, positions)

    def push(self, event: Event, position: int) -> Records | None:
        """Take one event; None if it completes nothing, which is known without making an array."""
        recipe = self._recipes.get(event.topic)
        if recipe is None:
            return None
        if self._row_count > self._compact_at:
            self._compact()
        row = self._row_count
        if row == len(self._cells):
            self._reserve(row + 1)
        words, doubles, codes = self._words, self._doubles, self._dictionary.codes
        base = row * self._program.column_count
        attributes = event.attributes
        for column, name, how, reserved in recipe:
            if not reserved:
                value = attributes.get(name)
            else:
                value = position if name == "position" else event.read(name)
            if value is None or how == _NULL:
                words[base + column] = at.NULL
            elif how == _FLOAT:
                if value > 0.0:  # type: ignore[operator]  # its code is its bits
                    doubles[base + column] = value  # type: ignore[assignment]
                else:
                    words[base + column] = encoded_float(float(value))
            elif how == _CODE:
                code = codes.get(value)  # type: ignore[arg-type]  # what is no string is not there
                words[base + column] = self._dictionary.code(str(value)) if code is None else code
            else:
                words[base + column] = int(value)
        self._row_count = row + 1
        self._rows.append_event(event)
        if self._program.ranked:
            self._order_strings()
        result = loop.take_one(self._control, row, self._codes[event.topic])
        if result == at.NOTHING:
            return None
        self._run(row, row + 1, result)
        return self._records(row, _NOTHING, position, None)

    def _order_strings(self) -> None:
        if self._program.ranked and len(self._dictionary.codes) != self._ranked_count:
            self._rank = self._dictionary.ranks()
            self._ranked_count = len(self._dictionary.codes)
            self._publish()

    def _reserve(self, rows: int) -> None:
        """Room for more rows, grown by a share so that single events stay cheap."""
        if rows > len(self._cells):
            shape = (max(rows, _grown(self._row_count)), self._cells.shape[1])
            if self._row_count == 0:
                self._cells = np.empty(shape, np.int64)
            else:
                self._cells.resize(shape, refcheck=False)
            self._publish()

    def _encode(
        self, batch: Batch, first: int, positions: Array | None, selection: Words, count: int
    ) -> None:
        columns: list[tuple[int, int, Array, Array | None, Array | None]] = []
        numbers = {"time": batch.time, "seq": batch.seq}
        if ("position", Kind.POSITION) in self._program.inputs:
            here = np.arange(first, first + len(batch)) if positions is None else positions
            numbers["position"] = here
        for (name, kind), target in self._program.inputs.items():
            if name in numbers:
                columns.append((target, at.SOURCE_INT, numbers[name], None, None))
            else:
                column = batch.source if name == "source" else batch.attributes.get((name, kind))
                columns.append((target, *self._source(column)))
        columns += [
            (target, at.SOURCE_NULL, _NOTHING, None, None) for target in self._program.numbers
        ]
        kept = [
            tuple(None if one is None else np.ascontiguousarray(one) for one in column[2:])
            for column in columns
        ]
        sources = np.array(
            [
                (target, how, *(0 if one is None else one.ctypes.data for one in arrays))
                for (target, how, *_), arrays in zip(columns, kept, strict=True)
            ],
            np.int64,
        ).reshape(-1, at.SOURCE_SIZE)
        encode.encode(sources, selection, count, self._cells, self._row_count)

    def _source(self, column: Column | None) -> tuple[int, Array, Array | None, Array | None]:
        """How a column is encoded: way, values, mask, mapping."""
        if column is None or column.kind is Kind.NULL:
            return _NULL, _NOTHING, None, None
        if column.kind is Kind.STRING:
            mapping = self._mapping(column.dictionary)
            return _CODE, column.values, column.valid, mapping
        return _HOW[column.kind], column.values, column.valid, None

    def _mapping(self, texts: tuple[str, ...]) -> Words:
        """What the codes of a column's dictionary are here; remembered for the next batch."""
        for known, mapping in self._mappings:
            if known is texts:
                return mapping
        code = self._dictionary.code
        mapping = np.array([code(text) for text in texts] or [0], np.int64)
        self._mappings = [(texts, mapping), *self._mappings[:_MAPPING_COUNT_MAX]]
        return mapping

    def _run(self, start: int, stop: int, result: int | None) -> None:
        """Run the loop to the end, making room whenever it asks."""
        control = self._control
        if result is None:
            for where in (at.CONTROL_ROW, at.CONTROL_DERIVED, at.CONTROL_NUMBERED):
                control[where] = start
            result = loop.take(control, stop)
        while result != at.DONE:
            if result == at.ARENA_FULL:
                self._grow_arena()
            elif result == at.LINE_NEEDED:
                self._form_line()
            else:
                self._reserve_output(2 * self._out_limit, 2 * len(self._out_rows))
            result = loop.take(control, stop)

    @property
    def _out_limit(self) -> int:
        return len(self._out[0]) - 1

    def _reserve_output(self, relations: int, events: int) -> None:
        """Room for so many; what was found so far stays."""
        if relations <= self._out_limit and events <= len(self._out_rows):
            return
        old = self._out, self._out_rows
        self._out, self._out_rows = _output(
            max(relations, self._out_limit), max(events, len(self._out_rows))
        )
        heads = int(self._control[at.CONTROL_OUT])
        rows = int(self._control[at.CONTROL_OUT_ROWS])
        self._out[:, :heads] = old[0][:, :heads]
        self._out_rows[:rows] = old[1][:rows]
        self._publish()

    def _grow_arena(self) -> None:
        self._arena.resize(_grown(len(self._arena)), refcheck=False)
        self._publish()

    def _records(
        self, first_row: int, selection: Words, first: int, positions: Array | None
    ) -> Records:
        heads, events = self._found()
        row, subscription, conjunction, ordinal, position = heads[: at.OUT_START, :-1]
        taken = selection[row - first_row] if len(selection) else row - first_row
        return Records(
            row,
            subscription,
            conjunction,
            ordinal,
            position,
            taken + first if positions is None else positions[taken],
            heads[at.OUT_START],
            events,
            self._rows,
            taken,
        )

    def _found(self) -> tuple[Words, Words]:
        """The output of a run: heads of relations (and one more start), rows of their events."""
        control = self._control
        count, events = int(control[at.CONTROL_OUT]), int(control[at.CONTROL_OUT_ROWS])
        control[at.CONTROL_OUT] = control[at.CONTROL_OUT_ROWS] = 0
        self._out[at.OUT_START, count] = events
        found = self._out[:, : count + 1], self._out_rows[:events]
        if count < self._out_limit // _COPIED_SHARE:
            return found[0].copy(), found[1].copy()
        # Whoever asked has the arrays; the next run gets others.
        self._out, self._out_rows = _output(_OUT_COUNT_MIN, _OUT_COUNT_MIN)
        self._publish()
        return found

    # --- state over time ----------------------------------------------------------------------

    def counters(self) -> dict[str, Counters]:
        """What happened so far, by subscription name."""
        found: dict[str, Counters] = {}
        for one, root in zip(self.subscriptions, self._program.roots, strict=True):
            mine = [self._codes[topic] for topic in one.subscription.topics]
            found[one.name] = Counters(
                events=int(self._topic_counts[mine].sum()),
                admitted=int(self._arena[root + at.ROOT_ADMITTED]),
                relations=int(self._arena[root + at.ROOT_RELATIONS]),
                expired=int(self._arena[root + at.ROOT_EXPIRED]),
                capped=int(self._arena[root + at.ROOT_CAPPED]),
                searched=int(self._arena[root + at.ROOT_STEPS]),
                over_budget=int(self._arena[root + at.ROOT_OVER_BUDGET]),
            )
        return found

    def _compact(self) -> None:
        """Let go of rows that no queue holds any more.

        Within the arrays that are there: new memory costs many times what moving its words does.
        """
        live = np.zeros(self._row_count, np.bool_)
        compaction.mark(self._control, live)
        before = np.empty(len(live) // compaction.COUNTED + 1, np.int64)
        count = compaction.number(live, before)
        compaction.renumber(self._control, live, before)
        compaction.pack(self._cells, live)
        self._rows = self._rows.keep(live)
        self._row_count = count
        self._compact_at = 2 * count + _COMPACT_ROWS_MIN
        if len(self._cells) > 2 * self._compact_at:
            self._cells.resize((self._compact_at, self._cells.shape[1]), refcheck=False)
        self._publish()

    def _form_line(self) -> None:
        """Write down the order of arrival of all queued events, from now on kept by the loop."""
        subscription = int(self._control[at.CONTROL_PENDING])
        root = int(self._program.words[subscription + at.SUB_ROOT])
        found = compaction.queued(self._control, subscription)
        order = np.lexsort((found[:, 3], found[:, 2]))
        words = found[order, :3].ravel()
        line = root + at.ROOT_LINE
        while not loop.make_queue_room(self._control, line, len(words)):
            self._grow_arena()
        data = int(self._arena[line + at.Q_DATA])
        self._arena[data : data + len(words)] = words
        self._arena[line + at.Q_TAIL] = len(words)
        self._arena[root + at.ROOT_LINED] = 1

    # --- bytes --------------------------------------------------------------------------------

    def save(self) -> SavedStage:
        """The state as arrays, after letting go of what is not needed."""
        self._compact()
        used = int(self._arena[at.ARENA_BUMP])
        return SavedStage(
            self._arena[:used].tobytes(),
            self._cells[: self._row_count].tobytes(),
            self._topic_counts.tobytes(),
            [SavedBatch.of(one) for one in self._rows.batches()],
        )

    def load(self, saved: SavedStage) -> None:
        """Go on from a saved state of the same subscriptions."""
        self._arena = np.frombuffer(saved.arena, np.int64).copy()
        cells = np.frombuffer(saved.cells, np.int64)
        self._cells = cells.reshape(-1, self._program.column_count).copy()
        self._topic_counts = np.frombuffer(saved.topic_counts, np.int64).copy()
        self._row_count = len(self._cells)
        self._compact_at = 2 * self._row_count + _COMPACT_ROWS_MIN
        self._rows = Rows(self._schemas)
        for batch in saved.rows:
            self._rows.append(batch.batch(), None)
        self._publish()


def _output(relations: int, events: int) -> tuple[Words, Words]:
    """Room for what is found: a column for each word of a relation's head, and rows of events.

    Columns have a word more: where the events of a relation after the last would begin. An array
    that is full is not resized: that writes to all of it, and what is not written to costs nothing.
    """
    return np.empty((at.OUT_SIZE, relations + 1), np.int64), np.empty(events, np.int64)


def _grown(count: int) -> int:
    """The next size of an array that is full: twice as much, or an eighth more when it is large.

    Arrays are resized in place: the system moves pages of large ones, and no word is copied.
    """
    return count + max(64, count if count < _LARGE else count // 8)
