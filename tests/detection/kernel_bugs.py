"""Planted bugs in the kernel, found by the same comparison with the oracle.

What a subscription means to the compiled loops is data, so most bugs are wrong words in a program:
nothing is compiled anew. The others sit around the loops: dictionary, rows, saved state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from concordant.correlate import kernel, program, routing, stage, writer
from concordant.correlate.compiled import compaction
from concordant.correlate.compiled import layout as at
from concordant.correlate.found import Selected
from concordant.correlate.kernel import Kernel
from concordant.correlate.stage import Stage
from concordant.correlate.writer import Dictionary
from concordant.model.kind import Kind
from tests.campaign.kernel import difference
from tests.detection.bugs import LARGE, LEFT_OVER, PLAIN, Bug, Plant, Tried, around

BUGS: list[Bug] = []


def bug(name: str, *, needs: str = "") -> Callable[[Plant], Plant]:
    def add(plant: Plant) -> Plant:
        BUGS.append(Bug(name, plant, needs))
        return plant

    return add


def kernel_difference(tried: Tried) -> str | None:
    """How the kernel differs from the oracle."""
    return difference(tried.case, tried.places, tried.summaries)


# --- where the words stand ------------------------------------------------------------------------

Words = Any
"""The words of a program: an array of int64."""


def subscriptions(words: Words) -> Iterator[int]:
    for index in range(words[at.PLAN_SUBSCRIPTION_COUNT]):
        yield int(words[words[at.PLAN_SUBSCRIPTIONS] + index])


def conjunctions(words: Words, subscription: int) -> Iterator[int]:
    for index in range(words[subscription + at.SUB_CONJUNCTION_COUNT]):
        yield int(words[words[subscription + at.SUB_CONJUNCTIONS] + index])


def parts(words: Words) -> Iterator[tuple[int, int, int]]:
    """Subscription, conjunction and part."""
    for subscription in subscriptions(words):
        for conjunction in conjunctions(words, subscription):
            for index in range(words[conjunction + at.CON_PART_COUNT]):
                part = int(words[conjunction + at.CON_PARTS]) + index * at.PART_SIZE
                yield subscription, conjunction, part


def slots(words: Words) -> Iterator[int]:
    for _, _, part in parts(words):
        for index in range(words[part + at.PART_SLOT_COUNT]):
            yield int(words[part + at.PART_SLOTS]) + index * at.SLOT_SIZE


def sieves(words: Words) -> Iterator[int]:
    """One per topic that is read."""
    topics = {int(words[topic + at.TOPIC_CODE]) for topic in topic_records(words)}
    for code in sorted(topics):
        yield int(words[at.PLAN_SIEVE]) + code * at.SIEVE_SIZE


def only_readers(words: Words) -> Iterator[int]:
    """Of the topics that one conjunction alone reads."""
    topics = {int(words[topic + at.TOPIC_CODE]) for topic in topic_records(words)}
    for code in sorted(topics):
        reader = int(words[words[words[at.PLAN_TOPICS] + code] + at.ROUTER_ONLY])
        if reader:
            yield reader


def topic_records(words: Words) -> Iterator[int]:
    for _, _, part in parts(words):
        for index in range(words[part + at.PART_TOPIC_COUNT]):
            yield int(words[part + at.PART_TOPICS]) + index * at.TOPIC_SIZE


def unaries(words: Words) -> Iterator[int]:
    for slot in slots(words):
        for index in range(words[slot + at.SLOT_UNARY_COUNT]):
            yield int(words[slot + at.SLOT_UNARY]) + index * at.UNARY_SIZE


def binaries(words: Words) -> Iterator[int]:
    for slot in slots(words):
        for index in range(words[slot + at.SLOT_BINARY_COUNT]):
            yield int(words[slot + at.SLOT_BINARY]) + index * at.BINARY_SIZE


def _with_words(patch: pytest.MonkeyPatch, change: Callable[[Words], None]) -> None:
    def compile_program(original: Any, *args: Any, **options: Any) -> Any:
        found = original(*args, **options)
        change(found.words)
        return found

    around(patch, stage, "compile_program", compile_program)


def _set(patch: pytest.MonkeyPatch, field: int, value: Callable[[int], int]) -> None:
    """Change one field of every subscription."""

    def change(words: Words) -> None:
        for subscription in subscriptions(words):
            words[subscription + field] = value(int(words[subscription + field]))

    _with_words(patch, change)


def _set_binary(patch: pytest.MonkeyPatch, field: int, values: dict[int, int]) -> None:
    """Change one field of every binary predicate that is no order of positions or times."""

    def change(words: Words) -> None:
        for record in binaries(words):
            if not words[record + at.BINARY_MONOTONE] and words[record + at.BINARY_PROGRAM] < 0:
                value = int(words[record + field])
                words[record + field] = values.get(value, value)

    _with_words(patch, change)


# --- predicates -----------------------------------------------------------------------------------


@bug("less than between two events is read as greater than")
def _(patch: pytest.MonkeyPatch) -> None:
    _set_binary(patch, at.BINARY_OP, {at.OP_LT: at.OP_GT, at.OP_GT: at.OP_LT})


@bug("less than between two events lets equal values pass")
def _(patch: pytest.MonkeyPatch) -> None:
    _set_binary(patch, at.BINARY_OP, {at.OP_LT: at.OP_LE, at.OP_GT: at.OP_GE})


@bug("equal values of two events are those that are not less")
def _(patch: pytest.MonkeyPatch) -> None:
    _set_binary(patch, at.BINARY_OP, {at.OP_EQ: at.OP_GE})


@bug("at most is less than, in every predicate")
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(writer.OPS, "<=", at.OP_LT)


@bug("an integer is compared with a float's bits")
def _(patch: pytest.MonkeyPatch) -> None:
    _set_binary(
        patch,
        at.BINARY_HOW,
        {at.HOW_INT_FLOAT: at.HOW_SAME, at.HOW_FLOAT_INT: at.HOW_SAME},
    )


@bug("an integer and a float change sides when they are compared")
def _(patch: pytest.MonkeyPatch) -> None:
    _set_binary(
        patch,
        at.BINARY_HOW,
        {at.HOW_INT_FLOAT: at.HOW_FLOAT_INT, at.HOW_FLOAT_INT: at.HOW_INT_FLOAT},
    )


@bug("a predicate on one event compares strings by code")
def _(patch: pytest.MonkeyPatch) -> None:
    def change(words: Words) -> None:
        for record in unaries(words):
            if words[record + at.UNARY_HOW] == at.HOW_STRING:
                words[record + at.UNARY_HOW] = at.HOW_SAME

    _with_words(patch, change)


@bug("a calculation over two events takes one for the other")
def _(patch: pytest.MonkeyPatch) -> None:
    def change(words: Words) -> None:
        for record in binaries(words):
            words[record + at.BINARY_SWAPPED] ^= 1

    _with_words(patch, change)


@bug("an event comes before itself")
def _(patch: pytest.MonkeyPatch) -> None:
    # In both places that know of the order: the test of a candidate and the shrinking of ranges.
    weak = {at.OP_LT: at.OP_LE, at.OP_GT: at.OP_GE}

    def change(words: Words) -> None:
        for record in binaries(words):
            if words[record + at.BINARY_MONOTONE]:
                op = int(words[record + at.BINARY_OP])
                words[record + at.BINARY_OP] = weak.get(op, op)
        _set_strict(words, 0)

    _with_words(patch, change)


@bug("events of one place or time never follow each other")
def _(patch: pytest.MonkeyPatch) -> None:
    _with_words(patch, lambda words: _set_strict(words, 1))


def _set_strict(words: Words, strict: int) -> None:
    for _, _, part in parts(words):
        for index in range(words[part + at.PART_BEFORE_COUNT]):
            record = words[part + at.PART_BEFORE] + index * at.BEFORE_SIZE
            words[record + at.BEFORE_STRICT] = strict


@bug("order constraints are followed once, whichever way they stand")
def _(patch: pytest.MonkeyPatch) -> None:
    around(patch, program, "_along", lambda original, order, slots: (order[::-1], True))


@bug("an index of least values keeps the greatest")
def _(patch: pytest.MonkeyPatch) -> None:
    turned = {at.INDEX_MIN: at.INDEX_MAX, at.INDEX_MAX: at.INDEX_MIN}

    def change(words: Words) -> None:
        for topic in topic_records(words):
            for place in range(words[topic + at.TOPIC_INDEX_COUNT]):
                record = words[topic + at.TOPIC_INDEXES] + place * at.INDEX_SIZE
                kind = int(words[record + at.INDEX_KIND])
                words[record + at.INDEX_KIND] = turned.get(kind, kind)

    _with_words(patch, change)


# --- what is queued and searched ------------------------------------------------------------------


@bug("an event waits only if one more than it needs came before it")
def _(patch: pytest.MonkeyPatch) -> None:
    def use(original: Any, *args: Any) -> Any:
        completes, needs = original(*args)
        more = {t: {q: count + 1 for q, count in mine.items()} for t, mine in needs.items()}
        return completes, more

    around(patch, program, "_use", use)


@bug("an event that another must follow or equal completes nothing")
def _(patch: pytest.MonkeyPatch) -> None:
    def use(original: Any, part: Any, before: Any) -> Any:
        return original(part, [[*record[: at.BEFORE_STRICT], 1] for record in before])

    around(patch, program, "_use", use)


@bug("an event of no use does not count in a cap")
def _(patch: pytest.MonkeyPatch) -> None:
    around(patch, program, "_bounded", lambda original, plan: False)


@bug("a derived event comes after the event that completed it")
def _(patch: pytest.MonkeyPatch) -> None:
    def distinct(original: Any, *args: Any, **options: Any) -> Any:
        return original(*args, **{**options, "distinct": True})

    around(patch, program, "Writer", distinct)


# --- policies -------------------------------------------------------------------------------------


@bug("slots are visited in the opposite order")
def _(patch: pytest.MonkeyPatch) -> None:
    def change(words: Words) -> None:
        for _, _, part in parts(words):
            start, count = words[part + at.PART_VISIT], words[part + at.PART_SLOT_COUNT]
            words[start : start + count] = words[start : start + count][::-1].copy()

    _with_words(patch, change)


# --- the straight way -----------------------------------------------------------------------------


def straight_steps(words: Words, *, compared: bool) -> Iterator[int]:
    """Steps of straight ways by comparison, or of those by order alone."""
    for _, _, part in parts(words):
        straight = int(words[part + at.PART_STRAIGHT])
        if straight and bool(words[straight + at.STRAIGHT_COMPARED]) == compared:
            for index in range(words[straight + at.STRAIGHT_COUNT]):
                yield straight + at.STRAIGHT_STEPS + index * at.STEP_SIZE


def _set_steps(patch: pytest.MonkeyPatch, field: int, value: int, *, compared: bool) -> None:
    def change(words: Words) -> None:
        for step in straight_steps(words, compared=compared):
            words[step + field] = value

    _with_words(patch, change)


@bug("on the straight way an event may come before the one it follows", needs=PLAIN)
def _(patch: pytest.MonkeyPatch) -> None:
    _set_steps(patch, at.STEP_AFTER, -1, compared=False)


@bug(
    "on the straight way the first event that fits what is before it is taken, come what may",
    needs=PLAIN,
)
def _(patch: pytest.MonkeyPatch) -> None:
    _set_steps(patch, at.STEP_CHILD, -1, compared=True)


@bug("on the straight way only one of those bound to an event counts", needs=PLAIN)
def _(patch: pytest.MonkeyPatch) -> None:
    _set_steps(patch, at.STEP_SIBLING, -1, compared=True)


@bug("what is bound to one event by several is held near as if by one", needs=PLAIN)
def _(patch: pytest.MonkeyPatch) -> None:
    def change(words: Words) -> None:
        for _, _, part in parts(words):
            straight = int(words[part + at.PART_STRAIGHT])
            if straight and words[straight + at.STRAIGHT_COMPARED]:
                words[straight + at.STRAIGHT_COMPARED] = at.COMPARED_IN_LINE

    _with_words(patch, change)


@bug("on the straight way what should be greater is taken for less", needs=PLAIN)
def _(patch: pytest.MonkeyPatch) -> None:
    _set_steps(patch, at.STEP_TURNED, 0, compared=True)


@bug("on the straight way equal values are not less or equal", needs=PLAIN)
def _(patch: pytest.MonkeyPatch) -> None:
    _set_steps(patch, at.STEP_LOWERED, 0, compared=True)


@bug("on the straight way equal values are not greater or equal", needs=PLAIN)
def _(patch: pytest.MonkeyPatch) -> None:
    _set_steps(patch, at.STEP_RAISED, 0, compared=True)


@bug("on the straight way every event is taken for one of the first topic", needs=PLAIN)
def _(patch: pytest.MonkeyPatch) -> None:
    def change(words: Words) -> None:
        for reader in only_readers(words):
            words[reader + at.READER_STEP] = 0

    _with_words(patch, change)


@bug("on the straight way events stand in the order in which they were bound", needs=PLAIN)
def _(patch: pytest.MonkeyPatch) -> None:
    def change(words: Words) -> None:
        for _, _, part in parts(words):
            straight = int(words[part + at.PART_STRAIGHT])
            for index in range(words[straight + at.STRAIGHT_COUNT] if straight else 0):
                words[straight + at.STRAIGHT_STEPS + index * at.STEP_SIZE + at.STEP_SLOT] = index

    _with_words(patch, change)


# --- the sieve ------------------------------------------------------------------------------------


@bug("the sieve holds back the bound itself")
def _(patch: pytest.MonkeyPatch) -> None:
    def change(words: Words) -> None:
        for record in sieves(words):
            if words[record + at.SIEVE_LOW] > at.NULL + 1:
                words[record + at.SIEVE_LOW] += 1
            elif words[record + at.SIEVE_HIGH] < 2**63 - 1:
                words[record + at.SIEVE_HIGH] -= 1

    _with_words(patch, change)


@bug("the sieve knows one reader of a topic only")
def _(patch: pytest.MonkeyPatch) -> None:
    around(
        patch,
        routing,
        "_sieve",
        lambda original, words, readers, encoded: original(words, readers[:1], encoded),
    )


@bug("recent takes the earliest candidate")
def _(patch: pytest.MonkeyPatch) -> None:
    _set(patch, at.SUB_RECENT, lambda recent: 0)


@bug("contiguous is ignored")
def _(patch: pytest.MonkeyPatch) -> None:
    _set(patch, at.SUB_CONTIGUOUS, lambda column: -1)


def _consume(patch: pytest.MonkeyPatch, given: int, instead: int) -> None:
    _set(patch, at.SUB_CONSUME, lambda consume: instead if consume == given else consume)


@bug("prefix removes only the matched events")
def _(patch: pytest.MonkeyPatch) -> None:
    _consume(patch, at.CONSUME_PREFIX, at.CONSUME_MATCHED)


@bug("matched removes what stands before as well")
def _(patch: pytest.MonkeyPatch) -> None:
    _consume(patch, at.CONSUME_MATCHED, at.CONSUME_PREFIX)


@bug("suffix removes only the matched events")
def _(patch: pytest.MonkeyPatch) -> None:
    _consume(patch, at.CONSUME_SUFFIX, at.CONSUME_MATCHED)


@bug("slide tumbles")
def _(patch: pytest.MonkeyPatch) -> None:
    _consume(patch, at.CONSUME_SLIDE, at.CONSUME_PREFIX)


@bug("a part of a staged conjunction fills the first slots of the relation")
def _(patch: pytest.MonkeyPatch) -> None:
    def change(words: Words) -> None:
        for _, _, part in parts(words):
            count, first = words[part + at.PART_SLOT_COUNT], words[part + at.PART_OUT]
            words[first : first + count] = np.arange(count)

    _with_words(patch, change)


@bug("a partition's key is its first attribute only")
def _(patch: pytest.MonkeyPatch) -> None:
    _set(patch, at.SUB_KEY_COUNT, lambda count: min(count, 1))


# --- bounds ---------------------------------------------------------------------------------------


@bug("within is ignored")
def _(patch: pytest.MonkeyPatch) -> None:
    _set(patch, at.SUB_WITHIN, lambda within: -1)


@bug("within leaves out the bound itself")
def _(patch: pytest.MonkeyPatch) -> None:
    _set(patch, at.SUB_WITHIN, lambda within: max(within - 1, min(within, 0)))


@bug("events are dropped as too old though times go back and forth")
def _(patch: pytest.MonkeyPatch) -> None:
    def change(words: Words) -> None:
        words[at.PLAN_TIME_ORDERED] = 1

    _with_words(patch, change)


@bug("a cap is ignored")
def _(patch: pytest.MonkeyPatch) -> None:
    _set(patch, at.SUB_QUEUE_MAX, lambda cap: -1)


@bug("the cap on all events lets one more stay")
def _(patch: pytest.MonkeyPatch) -> None:
    _set(patch, at.SUB_QUEUED_MAX, lambda cap: cap + 1)


# --- values ---------------------------------------------------------------------------------------


def _after_encoding(patch: pytest.MonkeyPatch, change: Any) -> None:
    """Change the cells of each input column after they were encoded."""

    def encode(original: Any, self: Stage, batch: Any, *rest: Any) -> None:
        original(self, batch, *rest)
        selection, count = rest[-2:]
        cells = self._cells[self._row_count : self._row_count + count]
        rows = selection if len(selection) else np.arange(count)
        for (name, kind), column in self._program.inputs.items():
            change(cells[:, column], kind, batch.attributes.get((name, kind)), rows)

    around(patch, Stage, "_encode", encode)


@bug("null is zero")
def _(patch: pytest.MonkeyPatch) -> None:
    def change(cells: Any, *_: Any) -> None:
        cells[cells == at.NULL] = 0

    _after_encoding(patch, change)


@bug("NaN is a value")
def _(patch: pytest.MonkeyPatch) -> None:
    def change(cells: Any, kind: Any, column: Any, rows: Any) -> None:
        if kind is Kind.FLOAT and column is not None:
            cells[np.isnan(column.values[rows])] = 2**62

    _after_encoding(patch, change)


@bug("integers become floats before they are compared", needs=LARGE)
def _(patch: pytest.MonkeyPatch) -> None:
    def change(cells: Any, kind: Any, *_: Any) -> None:
        if kind is Kind.INT:
            real = cells != at.NULL
            rounded = np.clip(cells[real].astype(float), -(2.0**63), 2.0**63 - 1024)
            cells[real] = rounded.astype(np.int64)

    _after_encoding(patch, change)


@bug("strings are ordered as they arrived")
def _(patch: pytest.MonkeyPatch) -> None:
    around(patch, Dictionary, "ranks", lambda original, self: np.arange(len(original(self))))


@bug("strings get new codes with every batch")
def _(patch: pytest.MonkeyPatch) -> None:
    def step(original: Any, self: Kernel, batch: Any) -> Any:
        codes = self._dictionary.codes
        turned = {text: len(codes) - 1 - code for text, code in codes.items()}
        codes.clear()
        codes.update(turned)
        return original(self, batch)

    around(patch, Kernel, "step", step)


# --- rows and saved state -------------------------------------------------------------------------


@bug("rows are numbered wrongly when others leave the store")
def _(patch: pytest.MonkeyPatch) -> None:
    def renumber(original: Any, control: Any, live: Any, before: Any) -> None:
        original(control, live, np.maximum(before - 1, 0))

    around(patch, compaction, "renumber", renumber)


@bug("a batch that is mostly kept forgets which of its rows are meant")
def _(patch: pytest.MonkeyPatch) -> None:
    def keep(original: Any, self: Selected, places: Any) -> Selected:
        kept = original(self, places)
        if kept.selection is None:
            return kept
        return Selected(kept.batch, np.arange(len(places)), ours=True)

    around(patch, Selected, "keep", keep)


@bug("a derived event has the time of its oldest event")
def _(patch: pytest.MonkeyPatch) -> None:
    def derived(original: Any, emit: Any, slots: Any, relation: Any, time: int) -> Any:
        return original(emit, slots, relation, min(event.time for event in relation.events))

    around(patch, kernel, "derived_event", derived)


@bug("a loaded state numbers its strings anew")
def _(patch: pytest.MonkeyPatch) -> None:
    around(patch, kernel, "Dictionary", lambda original, texts=(): original(sorted(texts)[::-1]))


@bug("a loaded state forgets the position in the total order")
def _(patch: pytest.MonkeyPatch) -> None:
    def load(original: Any, self: Kernel, data: bytes) -> None:
        original(self, data)
        self._position = 0

    around(patch, Kernel, "load", load)


def _forget(
    patch: pytest.MonkeyPatch, forget: Callable[[Words, Words, int, int, int], None]
) -> None:
    """After a load, change every block: `forget(words, arena, block, conjunction, part)`."""

    def load(original: Any, self: Stage, saved: Any) -> None:
        original(self, saved)
        words, arena = self._program.words, self._arena
        for subscription, conjunction, part in parts(words):
            block = int(arena[words[subscription + at.SUB_ROOT] + at.ROOT_FIRST])
            while block:
                forget(words, arena, block, conjunction, part)
                block = int(arena[block + at.BLOCK_NEXT])

    around(patch, Stage, "load", load)


@bug("a loaded state forgets that a match may be left over", needs=LEFT_OVER)
def _(patch: pytest.MonkeyPatch) -> None:
    def forget(words: Words, arena: Words, block: int, conjunction: int, part: int) -> None:
        arena[block + words[part + at.PART_LEFTOVER]] = 0

    _forget(patch, forget)


@bug("a loaded state numbers relations from the start")
def _(patch: pytest.MonkeyPatch) -> None:
    def forget(words: Words, arena: Words, block: int, conjunction: int, part: int) -> None:
        arena[block + words[conjunction + at.CON_ORDINAL]] = 0

    _forget(patch, forget)


@bug("a loaded state forgets finished parts")
def _(patch: pytest.MonkeyPatch) -> None:
    def forget(words: Words, arena: Words, block: int, conjunction: int, part: int) -> None:
        if words[part + at.PART_FINISHED] >= 0:
            queue = block + words[part + at.PART_FINISHED]
            arena[queue + at.Q_HEAD] = arena[queue + at.Q_TAIL]

    _forget(patch, forget)


# --- single events --------------------------------------------------------------------------------


@bug("an attribute of a single event that is null reads as zero")
def _(patch: pytest.MonkeyPatch) -> None:
    def recipe(original: Any, self: Stage, topic: Any) -> Any:
        found = original(self, topic)
        return [(*one[:2], at.SOURCE_INT if one[1] == "a" else one[2], one[3]) for one in found]

    around(patch, Stage, "_recipe", recipe)
