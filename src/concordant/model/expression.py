"""Expressions over attributes: what stands on either side of a comparison.

They are values: they can be compared, hashed, printed and evaluated. Evaluation gives `None` for
everything that has no value (null, a missing attribute, a division by zero, an overflow, a result
that is not a finite number); a predicate over such a value is false. Types are checked beforehand
(`language.check`), never here.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from concordant.model.kind import INT_MAX, INT_MIN, Kind, Value, format_instant


class Slot(NamedTuple):
    """One position of a relation: the i-th instance (from 1) of a topic."""

    topic: str
    instance: int

    def __str__(self) -> str:
        return f"{quoted(self.topic)}[{self.instance}]"


class Attribute(msgspec.Struct, frozen=True, tag="attribute"):
    """`T[i].name`; the name is dotted for nested attributes."""

    slot: Slot
    name: str

    def __str__(self) -> str:
        return f"{self.slot}.{dotted(self.name)}"


class Constant(msgspec.Struct, frozen=True, tag="constant"):
    """A literal. A `TIME` constant holds microseconds."""

    value: bool | int | float | str
    kind: Kind

    def __str__(self) -> str:
        if self.kind is Kind.STRING:
            return quote_string(str(self.value))
        if self.kind is Kind.BOOL:
            return "true" if self.value else "false"
        if self.kind is Kind.TIME:
            return quote_string(format_instant(int(self.value)))
        return repr(self.value)


class Arithmetic(msgspec.Struct, frozen=True, tag="arithmetic"):
    """`left op right` with op one of + - * /; `/` is division of floats."""

    op: str
    left: Expression
    right: Expression

    def __str__(self) -> str:
        return f"({self.left} {self.op} {self.right})"


Expression = Attribute | Constant | Arithmetic

Read = Callable[[Slot, str], Value]
"""How an expression gets the value of a slot's attribute."""

_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def evaluate(expression: Expression, read: Read) -> Value:
    """The value of an expression, or None if it has none.

    >>> evaluate(Arithmetic("/", Constant(1, Kind.INT), Constant(0, Kind.INT)), lambda s, n: None)
    """
    if isinstance(expression, Constant):
        return expression.value
    if isinstance(expression, Attribute):
        return read(expression.slot, expression.name)
    left = evaluate(expression.left, read)
    right = evaluate(expression.right, read)
    if left is None or right is None:
        return None
    assert isinstance(left, int | float) and isinstance(right, int | float)
    return calculate(expression.op, left, right)


def calculate(op: str, left: float, right: float) -> int | float | None:
    """One arithmetic step on 64-bit integers and floats; None where there is no result."""
    if op == "/":
        if right == 0:
            return None
        result = float(left) / float(right)
    elif isinstance(left, int) and isinstance(right, int):
        exact = _OPERATORS[op](left, right)
        return exact if INT_MIN <= exact <= INT_MAX else None
    else:
        result = _OPERATORS[op](float(left), float(right))
    return result if math.isfinite(result) else None


def attributes_of(expression: Expression) -> Iterator[Attribute]:
    """Every attribute that an expression reads, left to right."""
    if isinstance(expression, Attribute):
        yield expression
    elif isinstance(expression, Arithmetic):
        yield from attributes_of(expression.left)
        yield from attributes_of(expression.right)


def slots_of(*expressions: Expression) -> tuple[Slot, ...]:
    """The slots that expressions read, sorted, each once."""
    return tuple(sorted({attribute.slot for e in expressions for attribute in attributes_of(e)}))


# --- how names and strings are written, so that printed text can be read back ---------------------

_KEYWORDS = frozenset(
    {"and", "or", "not", "then", "match", "consume", "partition", "by"}
    | {"within", "cap", "emit", "order", "true", "false"}
)
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def quoted(name: str) -> str:
    """A name as it is written in subscription text: in backticks unless it is a plain word."""
    if _PLAIN_NAME.match(name) and name not in _KEYWORDS:
        return name
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def dotted(name: str) -> str:
    """A nested attribute's name, each part quoted where it must be."""
    return ".".join(quoted(part) for part in name.split("."))


def quote_string(text: str) -> str:
    """A string literal in double quotes."""
    return '"' + "".join(_ESCAPES.get(c, c) for c in text) + '"'
