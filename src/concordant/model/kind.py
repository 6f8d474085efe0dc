"""The kinds of values an attribute can have, and their limits.

Times are integers (microseconds since 1970, UTC) that carry the kind `TIME` in the schema; nothing
here reads a clock or knows a time zone other than UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum

from concordant.errors import UsageError

Value = bool | int | float | str | None
"""A value of an attribute; `None` is null. Times are integers."""

INT_MIN = -(2**63) + 1
INT_MAX = 2**63 - 1
"""Integers have 64 bits and a symmetric range: the pattern of -2**63 means null in columns."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Kind(StrEnum):
    """The kind of an attribute's values."""

    BOOL = "bool"
    INT = "int"
    FLOAT = "float"
    STRING = "string"
    TIME = "time"
    NULL = "null"
    """Only nulls were seen: every predicate on it is false."""
    POSITION = "position"
    """The place in the total order: it compares only with another position."""

    @property
    def numeric(self) -> bool:
        return self in (Kind.INT, Kind.FLOAT)


RESERVED = {
    "time": Kind.TIME,
    "source": Kind.STRING,
    "seq": Kind.INT,
    "position": Kind.POSITION,
}
"""Names every event has; they can be read like attributes."""


def parse_instant(text: str) -> int:
    """Microseconds of an ISO 8601 text; a text without a zone is UTC.

    >>> parse_instant("1970-01-01T00:00:01Z")
    1000000
    """
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        raise UsageError(
            f"{text!r} is not a time",
            hint="write an ISO 8601 time such as 2026-01-31T09:30:00Z",
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND


def format_instant(instant_us: int) -> str:
    """The ISO 8601 text of an instant, in UTC.

    >>> format_instant(1000000)
    '1970-01-01T00:00:01Z'
    """
    try:
        moment = _EPOCH + timedelta(microseconds=instant_us)
    except OverflowError:
        return f"{instant_us}us"
    return moment.replace(tzinfo=None).isoformat() + "Z"
