"""Predicates and expressions as numbers.

A writer appends words to a plan: comparisons as records that name columns, what is no single column
as postfix code, strings as codes of a `Dictionary` that lives as long as the kernel. It knows
schemas and the layout of records, and neither conjunctions nor events.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from concordant.correlate.compiled import layout as at
from concordant.correlate.plan import Binary, Part
from concordant.errors import InvariantViolation
from concordant.model.expression import (
    Arithmetic,
    Attribute,
    Constant,
    Expression,
    Slot,
    attributes_of,
    slots_of,
)
from concordant.model.kind import Kind
from concordant.model.predicate import FLIPPED, Comparison, Predicate
from concordant.model.topic import Schemas

OPS = {
    "<": at.OP_LT,
    ">": at.OP_GT,
    "<=": at.OP_LE,
    ">=": at.OP_GE,
    "=": at.OP_EQ,
    "!=": at.OP_NE,
}
_INT_CODES = {"+": at.CODE_ADD_INT, "-": at.CODE_SUB_INT, "*": at.CODE_MUL_INT}
_FLOAT_CODES = {
    "+": at.CODE_ADD_FLOAT,
    "-": at.CODE_SUB_FLOAT,
    "*": at.CODE_MUL_FLOAT,
    "/": at.CODE_DIV_FLOAT,
}

Wanted = tuple[str, Kind]
"""An input column: an attribute's name and kind, as in a batch; reserved names too."""


class Dictionary:
    """Strings as codes, the same in every batch and every column."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.codes: dict[str, int] = {text: code for code, text in enumerate(texts)}

    def code(self, text: str) -> int:
        return self.codes.setdefault(text, len(self.codes))

    def ranks(self) -> npt.NDArray[np.int64]:
        """Each code's place in the order of the strings, by code points."""
        texts = list(self.codes)
        rank = np.empty(max(1, len(texts)), np.int64)
        for place, code in enumerate(sorted(range(len(texts)), key=texts.__getitem__)):
            rank[code] = place
        return rank


@dataclass
class Writer:
    """Words of a plan in the making, and the columns they read."""

    schemas: Schemas
    dictionary: Dictionary
    time_ordered: bool
    distinct: bool
    """No two rows have the same position."""
    words: list[int] = field(default_factory=lambda: [0] * at.PLAN_HEADER)
    inputs: dict[Wanted, int] = field(default_factory=dict)
    derived: dict[tuple[object, ...], int] = field(default_factory=dict)
    derived_programs: list[tuple[int, int]] = field(default_factory=list)
    column_count: int = 0
    ranked: bool = False

    # --- small pieces -------------------------------------------------------------------------

    def put(self, words: Sequence[int]) -> int:
        """Append words and return their address."""
        address = len(self.words)
        self.words.extend(words)
        return address

    def column(self) -> int:
        self.column_count += 1
        return self.column_count - 1

    def input(self, slot_topic: str, name: str) -> int:
        kind = self.schemas[slot_topic].kind(name)
        if kind is None:
            raise InvariantViolation(f"{slot_topic} has no attribute {name!r}: it was not checked")
        if (name, kind) not in self.inputs:
            self.inputs[name, kind] = self.column()
        return self.inputs[name, kind]

    def kind(self, expression: Expression) -> Kind:
        """INT (also for times and positions), FLOAT, STRING or BOOL."""
        if isinstance(expression, Arithmetic):
            kinds = {self.kind(expression.left), self.kind(expression.right)}
            return Kind.INT if expression.op != "/" and kinds == {Kind.INT} else Kind.FLOAT
        if isinstance(expression, Constant):
            kind = expression.kind
        else:
            found = self.schemas[expression.slot.topic].kind(expression.name)
            kind = found if found is not None else Kind.NULL
        return Kind.INT if kind in (Kind.TIME, Kind.POSITION, Kind.NULL) else kind

    def constant(self, constant: Constant) -> int:
        if constant.kind is Kind.STRING:
            return self.dictionary.code(str(constant.value))
        if constant.kind is Kind.FLOAT:
            return encoded_float(float(constant.value))
        return int(constant.value)

    def how(self, comparison: Comparison) -> int:
        left, right = self.kind(comparison.left), self.kind(comparison.right)
        if left is Kind.STRING and right is Kind.STRING and comparison.op not in ("=", "!="):
            self.ranked = True
            return at.HOW_STRING
        if left is Kind.INT and right is Kind.FLOAT:
            return at.HOW_INT_FLOAT
        if left is Kind.FLOAT and right is Kind.INT:
            return at.HOW_FLOAT_INT
        return at.HOW_SAME

    # --- expressions --------------------------------------------------------------------------

    def code(self, expression: Expression, first: Slot) -> list[tuple[int, int]]:
        """Postfix code; attributes of the slot `first` are loaded from row a, others from b."""
        if isinstance(expression, Constant):
            return [(at.CODE_CONST, self.constant(expression))]
        if isinstance(expression, Attribute):
            load = at.CODE_LOAD_A if expression.slot == first else at.CODE_LOAD_B
            return [(load, self.input(expression.slot.topic, expression.name))]
        left, right = self.code(expression.left, first), self.code(expression.right, first)
        if self.kind(expression) is Kind.INT:
            return [*left, *right, (_INT_CODES[expression.op], 0)]
        if self.kind(expression.left) is Kind.INT:
            left.append((at.CODE_TO_FLOAT, 0))
        if self.kind(expression.right) is Kind.INT:
            right.append((at.CODE_TO_FLOAT, 0))
        return [*left, *right, (_FLOAT_CODES[expression.op], 0)]

    def comparison_code(self, comparison: Comparison, first: Slot) -> list[tuple[int, int]]:
        compare = OPS[comparison.op] * 16 + self.how(comparison)
        left, right = self.code(comparison.left, first), self.code(comparison.right, first)
        return [*left, *right, (at.CODE_COMPARE, compare)]

    def program(self, code: Sequence[tuple[int, int]]) -> int:
        return self.put([len(code), *(word for pair in code for word in pair)])

    def computed(self, code: list[tuple[int, int]]) -> int:
        """The column that holds the value of code over one row; equal code shares it."""
        key = tuple(code)
        if key not in self.derived:
            self.derived[key] = self.column()
            self.derived_programs.append((self.derived[key], self.program(code)))
        return self.derived[key]

    def side(self, expression: Expression, slot: Slot) -> int:
        """The column of one side of a binary predicate."""
        if isinstance(expression, Attribute):
            return self.input(slot.topic, expression.name)
        return self.computed(self.code(expression, slot))

    # --- predicates ---------------------------------------------------------------------------

    def unary(self, predicate: Comparison) -> list[int]:
        left, right = predicate.left, predicate.right
        if isinstance(left, Attribute) and isinstance(right, Constant):
            column = self.input(left.slot.topic, left.name)
            value = self.constant(right)
            return [column, OPS[predicate.op], value, self.how(predicate)]
        column = self.computed(self.comparison_code(predicate, predicate.slots[0]))
        return [column, at.OP_EQ, 1, at.HOW_SAME]

    def monotone(self, expression: Expression) -> bool:
        """Does the value grow along the stream?"""
        return isinstance(expression, Attribute) and (
            expression.name == "position" or (expression.name == "time" and self.time_ordered)
        )

    def binary(self, part: Part, mine: int, pair: Binary) -> list[int]:
        """The record of a binary predicate as seen from slot `mine`."""
        record = [0] * at.BINARY_SIZE
        other = pair.right if pair.left == mine else pair.left
        record[at.BINARY_OTHER] = other
        record[at.BINARY_PROGRAM] = -1
        record[at.BINARY_INDEX] = -1
        here, there = part.slots[mine], part.slots[other]
        predicate = pair.predicate
        left, right = slots_of(predicate.left), slots_of(predicate.right)
        if {left, right} != {(here,), (there,)}:
            first = part.slots[pair.left]
            record[at.BINARY_PROGRAM] = self.program(self.comparison_code(predicate, first))
            record[at.BINARY_SWAPPED] = int(here != first)
            return record
        if left == (there,):
            predicate = Comparison(FLIPPED[predicate.op], predicate.right, predicate.left)
        monotone = predicate.op != "!=" and all(
            map(self.monotone, (predicate.left, predicate.right))
        )
        record[at.BINARY_OP] = OPS[predicate.op]
        record[at.BINARY_HOW] = self.how(predicate)
        record[at.BINARY_MONOTONE] = int(monotone)
        if monotone and self.distinct and reads(predicate, "position"):
            # Positions compare only with positions: the rows' own numbers tell as much.
            record[at.BINARY_MINE] = record[at.BINARY_THEIRS] = at.COL_ROW
        else:
            record[at.BINARY_MINE] = self.side(predicate.left, here)
            record[at.BINARY_THEIRS] = self.side(predicate.right, there)
        return record


def reads(predicate: Predicate, name: str) -> bool:
    """Does a predicate read an attribute of this name?"""
    return isinstance(predicate, Comparison) and any(
        attribute.name == name
        for side in (predicate.left, predicate.right)
        for attribute in attributes_of(side)
    )


_pack_float = struct.Struct("=d").pack
_unpack_bits = struct.Struct("=q").unpack


def encoded_float(value: float) -> int:
    """A float as an integer that sorts like it (see `compiled.values`); NaN is null."""
    if value != value:
        return at.NULL
    bits: int = _unpack_bits(_pack_float(value + 0.0))[0]
    return bits if bits >= 0 else bits ^ (2**63 - 1)
