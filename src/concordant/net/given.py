"""What applications write as an event, checked: a topic, attributes, perhaps a time and an id.

A row is a mapping as in a line of JSON: `topic`, `time` and `id` are the event's, everything else
is an attribute; nested ones get dotted names. What no event can hold is refused with its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from concordant.errors import UsageError
from concordant.model.kind import INT_MAX, INT_MIN, Value, parse_instant
from concordant.net.session import Given

DEPTH_MAX = 16
_GIVEN_BY_THE_BUS = ("source", "seq", "position")


def given_of(row: Mapping[str, Any], *, topic: str = "") -> Given:
    """An event to publish; `topic` is that of rows which name none.

    >>> given_of({"topic": "Order", "n": 7, "to": {"city": "Bonn"}})
    Given(topic='Order', attributes={'n': 7, 'to.city': 'Bonn'}, time=None, id='', others=())
    """
    rest = dict(row)
    name = rest.pop("topic", topic)
    if not isinstance(name, str) or not name:
        raise UsageError(
            f"an event needs a topic, and {name!r} is none" if name else "an event needs a topic",
            hint='write {"topic": "Order", …}',
        )
    time = _time(rest.pop("time", None))
    id = rest.pop("id", "")
    if not isinstance(id, str):
        raise UsageError(f"the id {id!r} is no text", hint="write it in quotes, or leave it out")
    attributes: dict[str, Value] = {}
    _flatten(rest, "", attributes, 0)
    for reserved in _GIVEN_BY_THE_BUS:
        if reserved in attributes:
            raise UsageError(
                f"{reserved!r} is given by the bus, and cannot be an attribute",
                hint="leave it out; the publisher's name is the source",
            )
    return Given(name, attributes, time, id)


def _time(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        value = value.isoformat()
    if isinstance(value, str):
        value = parse_instant(value)
    if type(value) is not int or not 0 <= value <= INT_MAX:
        raise UsageError(
            f"{value!r} is no time",
            hint="give microseconds since 1970, or ISO 8601; or leave it out for now",
        )
    return value


def batch_of(rows: Iterable[Mapping[str, Any]]) -> list[Given]:
    """Rows as in a file of JSON Lines, as events to publish."""
    found = []
    for number, row in enumerate(rows, 1):
        try:
            found.append(given_of(row))
        except UsageError as error:
            raise error.located(f"event {number}") from None
    return found


def _flatten(
    given: Mapping[str, Any], prefix: str, attributes: dict[str, Value], depth: int
) -> None:
    if depth > DEPTH_MAX:
        raise UsageError(f"an attribute nests deeper than {DEPTH_MAX}")
    for name, value in given.items():
        if not isinstance(name, str):
            raise UsageError(f"the name of an attribute is a text, and {name!r} is none")
        if isinstance(value, Mapping):
            _flatten(value, f"{prefix}{name}.", attributes, depth + 1)
        else:
            attributes[prefix + name] = _value(prefix + name, value)


def _value(name: str, value: Any) -> Value:
    if isinstance(value, datetime):
        return parse_instant(value.isoformat())
    if value is None or isinstance(value, bool | str | float):
        return value
    if isinstance(value, int) and INT_MIN <= value <= INT_MAX:
        return value
    raise UsageError(
        f"the attribute {name!r} cannot be {value!r:.80}",
        hint="a value is a boolean, a 64-bit integer, a float, a text, a time or null",
    )
