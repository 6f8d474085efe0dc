"""Encoded values: floats that sort as integers, exact comparisons, arithmetic, and the cache."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numba import njit

from concordant.correlate.compiled import (
    arena,
    encode,
    index,
    jit,
    loop,
    ranges,
    search,
    steps,
    values,
)
from concordant.correlate.compiled import layout as at
from concordant.correlate.compiled.scratch import SCRATCH_SIZE
from concordant.correlate.writer import Dictionary, Writer, encoded_float
from concordant.model.expression import Arithmetic, Attribute, Constant, Expression, Slot, evaluate
from concordant.model.kind import INT_MAX, INT_MIN, Kind, Value
from concordant.model.predicate import Comparison, holds
from concordant.model.topic import Topic, schemas

FLOATS = st.floats(allow_nan=False)
INTS = st.integers(INT_MIN, INT_MAX)
EDGES = (0, 1, -1, 2**53, 2**53 + 1, -(2**53) - 1, 2**62, INT_MAX, INT_MIN, INT_MAX - 1023)
REALS = (
    *(0.0, -0.0, 1.5, -1.5, 5e-324, -5e-324, math.inf, -math.inf, 1e308, -1e308),
    *(2.0**53, 2.0**63, -(2.0**63), math.nextafter(2.0**63, 0), 2.0**64),
)


@njit
def decoded(code: Any) -> Any:
    return values.decode_float(code)


@njit
def encoded(value: Any) -> Any:
    return values.encode_float(value)


@njit
def passes(op: Any, how: Any, left: Any, right: Any, rank: Any) -> Any:
    return values.test(op, how, left, right, jit.pointer(rank))


@njit
def run(words: Any, address: Any, cells: Any, width: Any, rank: Any, scratch: Any) -> Any:
    return values.run_program(
        jit.pointer(words),
        address,
        jit.pointer(cells),
        width,
        jit.pointer(rank),
        0,
        1,
        jit.pointer(scratch),
    )


RANK = np.zeros(1, np.int64)

# --- floats ---------------------------------------------------------------------------------------


@given(FLOATS, FLOATS)
@example(0.0, -0.0)
@example(math.inf, 1.7976931348623157e308)
@example(-5e-324, 5e-324)
def test_encoded_floats_sort_as_the_floats_do(left: float, right: float) -> None:
    one, two = encoded(left), encoded(right)
    assert (one < two, one == two) == (left < right, left == right)


@given(FLOATS)
@example(-0.0)
def test_a_float_comes_back_from_its_code(value: float) -> None:
    code = encoded(value)
    assert decoded(code) == value
    assert code == encoded_float(value)
    assert code != at.NULL


def test_nan_is_null() -> None:
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF0000000000001], np.uint64)
    for nan in (math.nan, -math.nan, *odd.view(np.float64)):
        assert encoded(nan) == at.NULL
        assert encoded_float(float(nan)) == at.NULL


def test_an_array_is_encoded_like_its_elements() -> None:
    given_ = np.array([*REALS, math.nan])
    cells = np.empty((len(given_), 2), np.int64)
    source = np.array([[1, at.SOURCE_FLOAT, given_.ctypes.data, 0, 0]], np.int64)
    encode.encode(source, np.empty(0, np.int64), len(given_), cells, 0)
    assert cells[:, 1].tolist() == [encoded_float(float(value)) for value in given_]


def test_selected_rows_are_encoded_with_their_nulls() -> None:
    codes = np.array([0, -1, 1, 0, 1], np.int32)
    valid = np.array([True, False, True, False, True])
    mapping = np.array([7, 9], np.int64)
    where = (codes.ctypes.data, valid.ctypes.data, mapping.ctypes.data)
    source = np.array([[0, at.SOURCE_CODE, *where]], np.int64)
    cells = np.empty((4, 1), np.int64)
    encode.encode(source, np.array([1, 2, 3], np.int64), 3, cells, 1)
    assert cells[1:, 0].tolist() == [at.NULL, 9, at.NULL]


# --- comparing ------------------------------------------------------------------------------------

OPS = {
    "<": at.OP_LT,
    ">": at.OP_GT,
    "<=": at.OP_LE,
    ">=": at.OP_GE,
    "=": at.OP_EQ,
    "!=": at.OP_NE,
}


@given(INTS | st.sampled_from(EDGES), FLOATS | INTS.map(float) | st.sampled_from(REALS))
@settings(max_examples=500)
@example(2**53 + 1, 2.0**53)
@example(INT_MAX, 2.0**63)
@example(INT_MIN, -(2.0**63))
def test_integers_and_floats_compare_exactly(number: int, real: float) -> None:
    slot = Slot("A", 1)
    for op, code in OPS.items():
        compared = Comparison(op, Attribute(slot, "n"), Attribute(slot, "x"))
        known: dict[str, Value] = {"n": number, "x": real}
        expected = holds(compared, lambda _, name, known=known: known[name])
        assert passes(code, at.HOW_INT_FLOAT, number, encoded_float(real), RANK) == expected
        flipped = holds(
            Comparison(op, compared.right, compared.left),
            lambda _, name, known=known: known[name],
        )
        assert passes(code, at.HOW_FLOAT_INT, encoded_float(real), number, RANK) == flipped


def test_a_comparison_with_null_is_false() -> None:
    for code in OPS.values():
        for how in (at.HOW_SAME, at.HOW_INT_FLOAT, at.HOW_FLOAT_INT, at.HOW_STRING):
            assert not passes(code, how, at.NULL, 0, RANK)
            assert not passes(code, how, 0, at.NULL, RANK)
            assert not passes(code, how, at.NULL, at.NULL, RANK)


# --- arithmetic -----------------------------------------------------------------------------------

A, B = Slot("A", 1), Slot("B", 1)
KINDS = {"i": Kind.INT, "j": Kind.INT, "x": Kind.FLOAT, "y": Kind.FLOAT}
SCHEMAS = schemas([Topic("A", KINDS), Topic("B", KINDS)])


def expression(rng: Random, depth: int) -> Expression:
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.3:
            return Constant(rng.choice(EDGES), Kind.INT)
        if rng.random() < 0.2:
            return Constant(rng.choice([r for r in REALS if math.isfinite(r)]), Kind.FLOAT)
        return Attribute(rng.choice((A, B)), rng.choice(list(KINDS)))
    return Arithmetic(rng.choice("+-*/"), expression(rng, depth - 1), expression(rng, depth - 1))


def row_of(rng: Random) -> dict[str, Value]:
    near = [*EDGES, 2, 3, -7, 3_037_000_500, rng.randint(INT_MIN, INT_MAX)]
    return {
        name: None
        if rng.random() < 0.05
        else rng.choice(near)
        if kind is Kind.INT
        else rng.choice([*REALS, 0.5, math.nan, rng.uniform(-10, 10)])
        for name, kind in KINDS.items()
    }


def code_of(value: Value, kind: Kind) -> int:
    if value is None:
        return at.NULL
    return encoded_float(float(value)) if kind is Kind.FLOAT else int(value)


@given(st.integers(0, 2**64))
@settings(max_examples=1_500)
def test_programs_calculate_as_expressions_do(seed: int) -> None:
    rng = Random(seed)
    asked = expression(rng, rng.randint(1, 3))
    rows = {A: row_of(rng), B: row_of(rng)}
    writer = Writer(SCHEMAS, Dictionary(), time_ordered=True, distinct=True)
    address = writer.program(writer.code(asked, A))
    cells = np.full((2, writer.column_count), at.NULL, np.int64)
    for place, slot in enumerate((A, B)):
        for (name, kind), column in writer.inputs.items():
            cells[place, column] = code_of(rows[slot][name], kind)
    words = np.array(writer.words, np.int64)
    scratch = np.zeros(SCRATCH_SIZE, np.int64)
    found = run(words, address, cells.ravel(), cells.shape[1], RANK, scratch)
    expected = evaluate(asked, lambda slot, name: rows[slot][name])
    if isinstance(expected, float) and math.isnan(expected):
        expected = None  # a NaN that is only read: a predicate over it is false as well
    assert found == code_of(expected, writer.kind(asked)), (str(asked), rows, expected)


# --- the cache ------------------------------------------------------------------------------------


def test_every_compiled_function_is_cached_under_the_stamp_of_the_whole_folder() -> None:
    """Watches over attributes of Numba that are not public: without them old code may be used."""
    functions = [
        one
        for module in (arena, encode, index, loop, ranges, search, steps, values)
        for one in vars(module).values()
        if hasattr(one, "py_func") and one.__module__ == module.__name__
    ]
    assert len(functions) > 20
    for one in functions:
        assert one._cache._cache_file._source_stamp == jit._STAMP, one.__name__


def test_the_stamp_changes_with_the_sources() -> None:
    assert jit._digest() == jit._STAMP
    assert len(jit._STAMP) == 32
