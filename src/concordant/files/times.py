"""Texts to instants, a whole column at once.

The usual ISO 8601 forms are parsed by Arrow; everything else goes, each distinct text once, to
`model.kind.parse_instant`, which has the last word on what a time is. Knows no file and no row
number other than the position in the column.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from concordant.correlate.columns import Array
from concordant.errors import UsageError
from concordant.model.kind import INT_MAX, INT_MIN, parse_instant

USUAL = (
    r"^([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
    r"[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})?$"
)
"""ISO 8601 with a date and a time of day, as Arrow parses it."""

_ZONED = r"(Z|[+-][0-9]{2}:[0-9]{2})$"
_INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*\Z")
_TOO_FINE = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")


class BadText(Exception):  # noqa: N818 - an intermediate result, turned into a UsageError with place
    """The first position of a column that holds no time, and why."""

    def __init__(self, row: int, cause: UsageError) -> None:
        super().__init__(row)
        self.row = row
        self.cause = cause


def instants_of_texts(texts: Any) -> Array:
    """Microseconds of an Arrow column of strings; 0 where it is null."""
    if pc.all(pc.match_substring_regex(texts, USUAL)).as_py():
        try:
            return _by_arrow(texts)
        except pa.ArrowInvalid:  # a 13th month or the like: find it below
            pass
    codes, distinct = _coded(texts)
    instants = np.zeros(len(distinct) + 1, np.int64)  # the last is for nulls, code -1
    for code, text in enumerate(distinct):
        try:
            instants[code] = instant_of_text(text)
        except UsageError as error:
            raise BadText(int(np.argmax(codes == code)), error) from None
    found: Array = instants[codes]
    return found


def readable_instants(texts: Any) -> Any:
    """Microseconds of an Arrow column of strings; null where it is null or holds no time."""
    try:
        return pa.array(instants_of_texts(texts), mask=np.asarray(pc.is_null(texts)))
    except BadText:
        codes, distinct = _coded(texts)
    instants: list[int | None] = []
    for text in distinct:
        try:
            instants.append(instant_of_text(text))
        except UsageError:
            instants.append(None)
    return pa.array([*instants, None], pa.int64()).take(pa.array(codes % (len(distinct) + 1)))


def instant_of_text(text: str) -> int:
    """Microseconds of one text: an integer (already microseconds) or ISO 8601."""
    if _INTEGER.match(text):
        if len(text) > 40 or not INT_MIN <= int(text) <= INT_MAX:
            raise UsageError(
                f"the time {text[:40]} does not fit 64 bits",
                hint="give microseconds since 1970, or ISO 8601 text",
            )
        return int(text)
    if _TOO_FINE.search(text):
        raise UsageError(
            f"the time {text!r} is finer than a microsecond, the unit of time here",
            hint="round it to microseconds",
        )
    try:
        return parse_instant(text)
    except OverflowError:
        raise UsageError(f"the time {text!r} is out of range", hint="years 1 to 9999") from None


def _coded(texts: Any) -> tuple[Array, list[str]]:
    """The distinct texts of a column, and which of them each row has; null is -1."""
    encoded = pa.chunked_array([texts]) if isinstance(texts, pa.Array) else texts
    encoded = encoded.dictionary_encode().unify_dictionaries()
    if not encoded.num_chunks:
        return np.zeros(0, np.int64), []
    codes = np.concatenate([c.indices.fill_null(-1).to_numpy() for c in encoded.chunks])
    return codes, encoded.chunk(0).dictionary.to_pylist()


def _by_arrow(texts: Any) -> Array:
    zoned = pc.match_substring_regex(texts, _ZONED)
    if not pc.all(zoned).as_py():
        zone, nothing = (pa.scalar(text, texts.type) for text in ("Z", ""))
        texts = pc.if_else(zoned, texts, pc.binary_join_element_wise(texts, zone, nothing))
    moments = pc.cast(texts, pa.timestamp("us", "UTC")).cast(pa.int64()).fill_null(0)
    return np.require(moments.to_numpy(zero_copy_only=False), np.int64, ["C", "W"])
