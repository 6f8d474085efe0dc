"""Values of records to columns: which kind each attribute of each topic has.

The kind is found over all rows of the topic: bool, int, float, string or time; int and float give
float as long as no integer changes by it; any other mix is refused with both lines. Objects become
dotted names. Works column by column, so that rows cost no Python of their own.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from concordant.correlate.columns import Array, Column
from concordant.files.arrow import column_of, plain
from concordant.files.part import DEPTH_MAX, Origin, refuse_reserved
from concordant.files.times import instant_of_text
from concordant.model.kind import INT_MAX, INT_MIN, Kind

_NONE = type(None)
_KINDS = {
    bool: Kind.BOOL,
    int: Kind.INT,
    float: Kind.FLOAT,
    str: Kind.STRING,
    datetime: Kind.TIME,
}
_ARROW = {
    Kind.BOOL: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.TIME: pa.timestamp("us"),
}

Pieces = dict[tuple[str, Kind], list[tuple[Array, Any]]]


def attribute_columns(
    records: Sequence[Mapping[str, Any]], topic: Column, origin: Origin, taken: tuple[str, ...]
) -> tuple[dict[tuple[str, Kind], Column], list[dict[str, Kind]]]:
    """Columns of all attributes except `taken`, and the schema of each topic by its code."""
    pieces: Pieces = {}
    schemas: list[dict[str, Kind]] = []
    by_topic = np.argsort(topic.values, kind="stable")
    counts = np.bincount(topic.values, minlength=len(topic.dictionary))
    for rows in np.split(by_topic, np.cumsum(counts)[:-1]):
        own = [records[row] for row in rows] if len(counts) > 1 else records
        schema: dict[str, Kind] = {}
        _Topic(origin, rows, taken, schema, pieces).add_objects("", own, 1)
        refuse_reserved(origin, tuple(schema))
        schemas.append(schema)
    columns = {key: _spread(found, key, len(records), origin) for key, found in pieces.items()}
    return columns, schemas


class _Topic:
    """One topic's rows while its attributes are taken apart."""

    def __init__(
        self,
        origin: Origin,
        rows: Array,
        taken: tuple[str, ...],
        schema: dict[str, Kind],
        pieces: Pieces,
    ) -> None:
        self.origin, self.rows, self.taken = origin, rows, taken
        self.schema, self.pieces = schema, pieces

    def add_objects(self, prefix: str, objects: Sequence[Any], depth: int) -> None:
        for key in dict.fromkeys(chain.from_iterable(o for o in objects if o is not None)):
            name = f"{prefix}{key}"
            if name in self.taken:
                continue
            self.add(name, [None if o is None else o.get(key) for o in objects], depth)

    def add(self, name: str, values: list[Any], depth: int) -> None:
        kinds = set(map(type, values)) - {_NONE}
        if not kinds <= _KINDS.keys():
            values = [plain_value(value) for value in values]
            kinds = set(map(type, values)) - {_NONE}
        if dict in kinds and len(kinds) == 1:
            if depth >= DEPTH_MAX:
                self.refuse(
                    next(i for i, value in enumerate(values) if value is not None),
                    name,
                    f"the attribute nests deeper than {DEPTH_MAX} levels",
                    "flatten it, or drop it",
                )
            self.add_objects(f"{name}.", values, depth + 1)
            return
        unknown = kinds - _KINDS.keys() - {dict}
        if unknown:
            row = next(i for i, value in enumerate(values) if type(value) in unknown)
            self.refuse(
                row,
                name,
                f"the attribute is a {type(values[row]).__name__}; it must be a bool, int, float, "
                "string or time",
                "drop the attribute, or flatten it into several",
            )
        if name in self.schema:
            row = next((i for i, value in enumerate(values) if value is not None), 0)
            self.refuse(
                row,
                name,
                f"there are two columns '{name}', one by a dotted key and one by nesting",
                "rename one of them",
            )
        kind, array = self.typed(name, values, kinds)
        self.schema[name] = kind
        self.pieces.setdefault((name, kind), []).append((self.rows, array))

    def typed(self, name: str, values: list[Any], kinds: set[type]) -> tuple[Kind, Any]:
        if not kinds:
            return Kind.NULL, pa.nulls(len(values))
        if kinds == {int, float}:
            for i, value in enumerate(values):
                if type(value) is int and not exact(value):
                    self.refuse(
                        i,
                        name,
                        f"the integer {_shown(value)} stands among floats and is no float exactly",
                        "write all values of the attribute as integers, or as strings",
                    )
            floats = [None if value is None else float(value) for value in values]
            return Kind.FLOAT, pa.array(floats, pa.float64())
        if len(kinds) > 1:
            self.refuse_mix(name, values)
        kind = _KINDS[kinds.pop()]
        if kind is Kind.STRING:
            return kind, text_array(values, self.origin, name, lambda i: int(self.rows[i]))
        if kind is Kind.INT:
            integers_fit(values, self.origin, name, lambda i: int(self.rows[i]))
        if kind is Kind.TIME:
            instants = [None if v is None else instant_of_text(str(v)) for v in values]
            return kind, pa.array(instants, pa.int64()).cast(_ARROW[kind])
        return kind, pa.array(values, _ARROW[kind])

    def refuse_mix(self, name: str, values: list[Any]) -> None:
        first = next(i for i, value in enumerate(values) if value is not None)
        told = _told(values[first])
        row = next(i for i, v in enumerate(values) if v is not None and _told(v) != told)
        if {told, _told(values[row])} == {"int", "float"}:  # these agree; a third one does not
            row = next(
                i
                for i, v in enumerate(values)
                if v is not None and _told(v) not in ("int", "float")
            )
        other = self.origin.line(int(self.rows[first]))
        self.refuse(
            row,
            name,
            f"the attribute '{name}' is {_told(values[row])} here and {told} in line {other}; "
            "within a topic it has one kind",
            "write all its values alike, or use two attributes",
        )

    def refuse(self, index: int, name: str, message: str, hint: str) -> None:
        self.origin.refuse(message, hint=hint, row=int(self.rows[index]), column=name)


def plain_value(value: Any) -> Any:
    """A Python value as bool, int, float, str, datetime, dict or None; others as they are."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[us]").item()
    elif isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in _KINDS:
        return value
    if isinstance(value, decimal.Decimal):
        return int(value) if value.is_finite() and value == int(value) else float(value)
    if isinstance(value, datetime):
        zone = value.tzinfo or UTC
        nanosecond = getattr(value, "nanosecond", 0)  # of a pandas Timestamp
        if nanosecond == 0 and value == value:
            return datetime.combine(value.date(), value.time(), zone)
        return None if value != value else value
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    for base in (int, float, str):
        if isinstance(value, base):
            return base(value)
    return dict(value) if isinstance(value, Mapping) else value


def text_array(
    values: list[Any], origin: Origin, name: str, row_of: Callable[[int], int] = lambda i: i
) -> Any:
    """Strings (or None) in Arrow; refuses those that no UTF-8 can hold."""
    try:
        return pa.array(values, pa.large_string())
    except UnicodeEncodeError:
        for index, value in enumerate(values):
            if isinstance(value, str) and not _encodable(value):
                origin.refuse(
                    f"the text {value!r} cannot be written as UTF-8",
                    hint="remove its lone surrogates",
                    row=row_of(index),
                    column=name,
                )
        raise


def integers_fit(
    values: list[Any], origin: Origin, name: str, row_of: Callable[[int], int] = lambda i: i
) -> None:
    """Refuse integers beyond 64 bits."""
    present = [value for value in values if value is not None]
    if min(present) >= INT_MIN and max(present) <= INT_MAX:
        return
    index = next(i for i, v in enumerate(values) if v is not None and not INT_MIN <= v <= INT_MAX)
    origin.refuse(
        f"the integer {_shown(values[index])} is beyond 64 signed bits",
        hint="write it as a string or as a float",
        row=row_of(index),
        column=name,
    )


def exact(value: int) -> bool:
    """Is the integer the same as a float?"""
    return -(2**53) <= value <= 2**53 or (abs(value) < 2**1000 and int(float(value)) == value)


def _shown(value: int) -> str:
    return str(value) if abs(value) < 10**40 else "of more than 40 digits"


def _told(value: Any) -> str:
    return "object" if type(value) is dict else str(_KINDS.get(type(value), type(value).__name__))


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _spread(
    found: list[tuple[Array, Any]], key: tuple[str, Kind], count: int, origin: Origin
) -> Column:
    """One column over all rows of pieces that belong to some of the topics."""
    name, kind = key
    column = column_of(
        plain(pa.chunked_array([array for _, array in found]), origin, name), origin, name
    )
    rows = np.concatenate([rows for rows, _ in found])
    if len(found) == 1 and len(rows) == count:
        return column
    values = np.full(count, -1 if kind is Kind.STRING else 0, column.values.dtype)
    values[rows] = column.values
    valid = np.zeros(count, np.bool_)
    valid[rows] = True if column.valid is None else column.valid
    return Column(kind, values, None if valid.all() else valid, column.dictionary)
