"""Encoded values: comparing and calculating with them.

Integers and times stand for themselves. A float is its bits, turned so that integers compare as the
floats do; NaN and null are `NULL`. A string is a code, equal codes are equal strings, and `rank`
orders them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from concordant.correlate.compiled.jit import compiled, inlined
from concordant.correlate.compiled.layout import (
    AT_STACK,
    CODE_ADD_FLOAT,
    CODE_ADD_INT,
    CODE_COMPARE,
    CODE_CONST,
    CODE_LOAD_A,
    CODE_LOAD_B,
    CODE_MUL_FLOAT,
    CODE_MUL_INT,
    CODE_SUB_FLOAT,
    CODE_SUB_INT,
    CODE_TO_FLOAT,
    CODE_TO_FLOAT_A,
    HOW_INT_FLOAT,
    HOW_SAME,
    HOW_STRING,
    NULL,
    OP_EQ,
    OP_GE,
    OP_GT,
    OP_LE,
    OP_LT,
)

_INT_MAX = 2**63 - 1
_LOW_BITS = 0x7FFFFFFFFFFFFFFF
_TWO_63 = float(2**63)


@intrinsic
def _bits_of(typingctx: Any, value: Any) -> Any:  # pragma: no cover - compiled
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.IntType(64))

    return types.int64(types.float64), codegen


@intrinsic
def _float_of(typingctx: Any, value: Any) -> Any:  # pragma: no cover - compiled
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.DoubleType())

    return types.float64(types.int64), codegen


@inlined
def encode_float(value):
    """A float as an integer that sorts like it."""
    if value != value:
        return NULL
    bits = _bits_of(value + 0.0)
    return bits if bits >= 0 else bits ^ _LOW_BITS


@inlined
def decode_float(code):
    return _float_of(code if code >= 0 else code ^ _LOW_BITS)


@compiled
def compare_int_float(number, real):
    """-1, 0 or 1: an exact comparison, by value."""
    if real >= _TWO_63:
        return -1
    if real < -_TWO_63:
        return 1
    whole = np.floor(real)
    floor = np.int64(whole)
    if number > floor:
        return 1
    if number < floor:
        return -1
    return -1 if real > whole else 0


@inlined
def order_of(how, left, right, rank):
    """-1, 0 or 1 for two values that are not null."""
    if how == HOW_SAME:
        a, b = left, right
    elif how == HOW_STRING:
        a, b = rank[left], rank[right]
    elif how == HOW_INT_FLOAT:
        a, b = compare_int_float(left, decode_float(right)), 0
    else:
        a, b = 0, compare_int_float(right, decode_float(left))
    return (a > b) - (a < b)


@inlined
def test(op, how, left, right, rank):
    """Does `left op right` hold? False if either is null."""
    if left == NULL or right == NULL:
        return False
    order = order_of(how, left, right, rank)
    if op == OP_LT:
        return order < 0
    if op == OP_GT:
        return order > 0
    if op == OP_LE:
        return order <= 0
    if op == OP_GE:
        return order >= 0
    if op == OP_EQ:
        return order == 0
    return order != 0


@compiled
def _add(a, b):
    """The sum, or null if it leaves the range; asked before, since signed overflow is undefined."""
    if (b > 0 and a > _INT_MAX - b) or (b < 0 and a < -_INT_MAX - b):
        return NULL
    return a + b


@compiled
def _multiply(a, b):
    if b != 0 and abs(a) > _INT_MAX // abs(b):
        return NULL
    return a * b


@compiled
def _finite(value):
    return encode_float(value) if np.isfinite(value) else NULL


@compiled
def run_program(plan, address, cells, width, rank, row_a, row_b, scratch):
    """Evaluate postfix code over one or two rows; null when there is no value."""
    count = plan[address]
    top = AT_STACK - 1
    for i in range(count):
        code = plan[address + 1 + 2 * i]
        argument = plan[address + 2 + 2 * i]
        if code == CODE_LOAD_A:
            top += 1
            scratch[top] = cells[row_a * width + argument]
        elif code == CODE_LOAD_B:
            top += 1
            scratch[top] = cells[row_b * width + argument]
        elif code == CODE_CONST:
            top += 1
            scratch[top] = argument
        elif code == CODE_TO_FLOAT:
            if scratch[top] != NULL:
                scratch[top] = encode_float(float(scratch[top]))
        elif code == CODE_TO_FLOAT_A:
            if scratch[top - 1] != NULL:
                scratch[top - 1] = encode_float(float(scratch[top - 1]))
        else:
            right = scratch[top]
            top -= 1
            left = scratch[top]
            if code == CODE_COMPARE:
                scratch[top] = 1 if test(argument >> 4, argument & 15, left, right, rank) else 0
            elif left == NULL or right == NULL:
                scratch[top] = NULL
            elif code == CODE_ADD_INT:
                scratch[top] = _add(left, right)
            elif code == CODE_SUB_INT:
                scratch[top] = _add(left, -right)
            elif code == CODE_MUL_INT:
                scratch[top] = _multiply(left, right)
            else:
                x = decode_float(left)
                y = decode_float(right)
                if code == CODE_ADD_FLOAT:
                    scratch[top] = _finite(x + y)
                elif code == CODE_SUB_FLOAT:
                    scratch[top] = _finite(x - y)
                elif code == CODE_MUL_FLOAT:
                    scratch[top] = _finite(x * y)
                elif y == 0.0:
                    scratch[top] = NULL
                else:
                    scratch[top] = _finite(x / y)
    return scratch[top]
