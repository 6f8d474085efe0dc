"""One Arrow column to one column of a batch, without a Python loop over rows.

Knows Arrow's types and which kind each becomes; types that no predicate could compare (lists,
maps, binaries, ...) are refused by name. Knows nothing of topics or reserved columns.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as at

from concordant.correlate.columns import Array, Column
from concordant.files.part import Origin
from concordant.files.times import BadText, instants_of_texts
from concordant.model.kind import INT_MAX, INT_MIN, Kind

_UNIT_US = {"s": 1_000_000, "ms": 1_000, "us": 1}
_DAY_US = 86_400_000_000


def is_text(kind: Any) -> bool:
    return bool(at.is_string(kind) or at.is_large_string(kind) or at.is_string_view(kind))


def plain(values: Any, origin: Origin, name: str) -> Any:
    """The column without string views, and with dictionaries of strings only."""
    if at.is_string_view(values.type):  # few functions of Arrow take them
        return values.cast(pa.large_string())
    if at.is_dictionary(values.type) and not is_text(values.type.value_type):
        try:
            return values.cast(values.type.value_type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            _refuse_type(values.type, origin, name)
    if at.is_dictionary(values.type):  # Arrow cannot decode a dictionary of string views
        chunks = [
            pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.large_string()))
            for c in values.chunks
        ]
        return pa.chunked_array(chunks, pa.dictionary(values.type.index_type, pa.large_string()))
    return values


def column_of(values: Any, origin: Origin, name: str) -> Column:
    """An attribute's column; `values` comes from `plain`."""
    kind = values.type
    if at.is_null(kind):
        nothing = np.zeros(len(values), np.bool_)
        return Column(Kind.NULL, nothing, nothing.copy())
    if is_text(kind) or at.is_dictionary(kind):
        return texts_of(values)
    valid = valid_of(values)
    if at.is_boolean(kind):
        return Column(Kind.BOOL, _numpy(filled(values, False), np.bool_), valid)
    if at.is_integer(kind):
        return Column(Kind.INT, integers_of(values, origin, name), valid)
    if at.is_floating(kind):
        numbers = filled(values.cast(pa.float64()), 0.0)
        return Column(Kind.FLOAT, _numpy(numbers, np.float64), valid)
    if at.is_decimal(kind):
        return _decimals_of(values, valid)
    if at.is_timestamp(kind) or at.is_date(kind):
        return Column(Kind.TIME, instants_of(values, origin, name), valid)
    return _refuse_type(kind, origin, name)


def texts_of(values: Any) -> Column:
    """Strings, or a dictionary of strings, as codes; null is code -1."""
    if at.is_dictionary(values.type):
        chunks = values.chunks
        # A dictionary may repeat a string or hold a null; codes of a batch may not.
        if any(
            c.dictionary.null_count or len(c.dictionary.unique()) < len(c.dictionary)
            for c in chunks
        ):
            decoded = pa.chunked_array([c.dictionary_decode() for c in chunks])
            encoded = decoded.dictionary_encode()
        else:
            encoded = values
    else:
        encoded = values.dictionary_encode()
    encoded = encoded.unify_dictionaries()
    valid = valid_of(encoded)
    if not encoded.num_chunks:
        return Column(Kind.STRING, np.zeros(0, np.int32), valid, ())
    codes = np.concatenate(
        [filled(c.indices.cast(pa.int32()), -1).to_numpy() for c in encoded.chunks]
    )
    dictionary = encoded.chunk(0).dictionary.to_pylist()
    return Column(Kind.STRING, np.require(codes, np.int32, ["C", "W"]), valid, tuple(dictionary))


def integers_of(values: Any, origin: Origin, name: str) -> Array:
    """Integers of any width; 0 where null."""
    if at.is_uint64(values.type):
        beyond = pc.index(pc.greater(values, pa.scalar(INT_MAX, pa.uint64())), True).as_py()
        if beyond >= 0:
            origin.refuse(
                f"the integer {values[beyond]} is beyond 64 signed bits",
                hint="cast the column to float64 or to string",
                row=beyond,
                column=name,
            )
    found = _numpy(filled(values.cast(pa.int64()), 0), np.int64)
    below = np.flatnonzero(found < INT_MIN)
    if len(below):
        origin.refuse(
            f"the integer {found[below[0]]} is beyond the symmetric 64-bit range",
            hint="cast the column to float64 or to string",
            row=int(below[0]),
            column=name,
        )
    return found


def instants_of(values: Any, origin: Origin, name: str) -> Array:
    """Timestamps of any unit and dates in microseconds; 0 where null. Without a zone: UTC."""
    kind = values.type
    if at.is_date(kind):
        width = pa.int32() if at.is_date32(kind) else pa.int64()
        counts = _numpy(filled(values.cast(width), 0), np.int64)
        return counts * (_DAY_US if at.is_date32(kind) else 1_000)
    counts = _numpy(filled(values.cast(pa.int64()), 0), np.int64)
    if kind.unit == "ns":
        lossy = counts % 1_000 != 0
        if lossy.any():
            origin.refuse(
                "the time has nanoseconds that microseconds, the unit of time here, cannot hold",
                hint="round the column to microseconds first, or keep the rest in a column of its "
                "own",
                row=int(np.argmax(lossy)),
                column=name,
            )
        return counts // 1_000
    factor = _UNIT_US[kind.unit]
    limit = INT_MAX // factor
    beyond = (counts > limit) | (counts < -limit)
    if factor > 1 and beyond.any():
        origin.refuse(
            "the time does not fit 64 bits of microseconds",
            hint="correct the row, or drop it",
            row=int(np.argmax(beyond)),
            column=name,
        )
    return counts * factor


def parsed_instants(values: Any, origin: Origin, name: str) -> Array:
    """Instants of a column of strings."""
    try:
        return instants_of_texts(values)
    except BadText as bad:
        origin.refuse(bad.cause.message, hint=bad.cause.hint, row=bad.row, column=name)


def filled(values: Any, blank: Any) -> Any:
    """Something in place of nulls; where there are none, nothing is copied."""
    return values.fill_null(blank) if values.null_count else values


def valid_of(values: Any) -> npt.NDArray[np.bool_] | None:
    """Which rows are not null; None if all."""
    return None if values.null_count == 0 else _numpy(pc.is_valid(values), np.bool_)


def first_null(values: Any) -> int | None:
    """The first null row, if any."""
    if values.null_count == 0:
        return None
    row: int = pc.index(pc.is_null(values), True).as_py()
    return row


def _decimals_of(values: Any, valid: npt.NDArray[np.bool_] | None) -> Column:
    if values.type.scale <= 0:
        try:
            whole = filled(values.cast(pa.int64()), 0)
            return Column(Kind.INT, _numpy(whole, np.int64), valid)
        except pa.ArrowInvalid:  # beyond 64 bits: the nearest float, as for other decimals
            pass
    return Column(Kind.FLOAT, _numpy(filled(values.cast(pa.float64()), 0.0), np.float64), valid)


def _numpy(values: Any, dtype: npt.DTypeLike) -> Array:
    # Writable, because a read-only array is another type to compiled kernels.
    return np.require(values.to_numpy(), dtype, ["C", "W"])


def _refuse_type(kind: Any, origin: Origin, name: str) -> NoReturn:
    origin.refuse(
        f"the column has the type {kind}; an attribute is a bool, int, float, string or time",
        hint="drop the column, or flatten it into columns of these types",
        column=name,
    )
