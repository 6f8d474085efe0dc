"""Records (JSON objects, dicts, events) to a part: reserved values and the topics of the rows.

A topic has the attributes seen in its rows (`infer` finds their kinds). Knows nothing of files
beyond the origin it is given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from concordant.correlate.columns import Array, Column
from concordant.errors import UsageError
from concordant.files.arrow import parsed_instants, texts_of
from concordant.files.infer import attribute_columns, integers_fit, plain_value, text_array
from concordant.files.part import (
    Names,
    Origin,
    Part,
    make_part,
    refuse_both_topics,
    refuse_missing_topic,
)
from concordant.files.table import blank_is_null, refuse_null
from concordant.files.times import instant_of_text
from concordant.model.event import Event
from concordant.model.kind import Kind

Record = Mapping[str, Any]
_NONE = type(None)


def part_of_records(
    records: Sequence[Record],
    origin: Origin,
    *,
    names: Names,
    topic: str | None,
    own_topic: bool,
    numbers: Array,
) -> Part:
    """A part of mappings, one per event."""
    if not records:
        origin.refuse("it is empty", hint="give an input with at least one event")
    keys = dict.fromkeys(chain.from_iterable(records))
    for key in keys:
        if type(key) is not str:
            row = next(row for row, record in enumerate(records) if key in record)
            origin.refuse(f"the key {key!r} is not a string", hint="use names as keys", row=row)
    given = {name: _pull(records, name, name in keys) for name in names.all}
    found = {name: values for name, values in given.items() if values is not None}
    names.check([*keys, *(name for name in found if name not in keys)], origin)
    if own_topic and topic is not None and names.topic in found:
        refuse_both_topics(origin, names.topic, topic)
    topics = found.get(names.topic)
    if topics is None and topic is None:
        refuse_missing_topic(origin, names.topic)
    if topics is None:
        topics = [topic] * len(records)
    return _part(
        origin,
        records,
        topics=topics,
        sources=found.get(names.source),
        seqs=found.get(names.seq),
        times=found[names.time],
        ids=found.get(names.id),
        names=names,
        taken=tuple(found),
        numbers=numbers,
    )


def part_of_events(events: Sequence[Event], origin: Origin) -> Part:
    """A part of event objects; their integers stay integers, as an event has no schema."""
    default_ids = all(event.id == f"{event.source}:{event.seq}" for event in events)
    return _part(
        origin,
        [event.attributes for event in events],
        topics=[event.topic for event in events],
        sources=[event.source for event in events],
        seqs=[event.seq for event in events],
        times=[event.time for event in events],
        ids=None if default_ids else [event.id for event in events],
        names=Names(),
        taken=(),
        numbers=np.arange(1, len(events) + 1, dtype=np.int64),
    )


def _part(
    origin: Origin,
    records: Sequence[Record],
    *,
    topics: list[Any],
    sources: list[Any] | None,
    seqs: list[Any] | None,
    times: list[Any],
    ids: list[Any] | None,
    names: Names,
    taken: tuple[str, ...],
    numbers: Array,
) -> Part:
    topic = _topics(topics, origin, names.topic)
    attributes, kinds = attribute_columns(records, topic, origin, taken)
    return make_part(
        origin,
        topic=topic,
        kinds=kinds,
        time=_times(times, origin, names.time),
        source=None if sources is None else _sources(sources, origin, names.source),
        seq=None if seqs is None else _seqs(seqs, origin, names.seq),
        ids=None
        if ids is None
        else blank_is_null(texts_of(_identifiers(ids, origin, names.id, "id"))),
        numbers=numbers,
        attributes=attributes,
    )


def _pull(records: Sequence[Record], name: str, present: bool) -> list[Any] | None:
    """The values under a key, or under a dotted path where no key is called so."""
    if present:
        return [record.get(name) for record in records]
    if "." not in name:
        return None
    steps = name.split(".")
    found: list[Any] = []
    seen = False
    for record in records:
        value: Any = record
        for step in steps:
            seen_here = isinstance(value, Mapping) and step in value
            value = value[step] if seen_here else None
        seen = seen or seen_here
        found.append(value)
    return found if seen else None


def _topics(values: list[Any], origin: Origin, name: str) -> Column:
    for row, value in _unlike(values, {str}):
        if value is None:
            refuse_missing_topic(origin, name, row)
        if not isinstance(value, str):
            origin.refuse(
                f"the topic {value!r} is not a string",
                hint="write the topic's name in quotes",
                row=row,
                column=name,
            )
    codes = {value: code for code, value in enumerate(dict.fromkeys(values))}
    if "" in codes:
        refuse_missing_topic(origin, name, values.index(""))
    text_array(list(codes), origin, name, lambda i: values.index(list(codes)[i]))
    found = np.fromiter(map(codes.__getitem__, values), np.int32, len(values))
    return Column(Kind.STRING, found, None, tuple(str(value) for value in codes))


def _sources(values: list[Any], origin: Origin, name: str) -> Column:
    for row, value in _unlike(values, {str, int}):
        if value is None:
            refuse_null(origin, "source", row, name)
    column = texts_of(_identifiers(values, origin, name, "source"))
    if "" in column.dictionary:
        row = int(np.argmax(column.values == column.dictionary.index("")))
        refuse_null(origin, "source", row, name)
    return column


def _identifiers(values: list[Any], origin: Origin, name: str, role: str) -> Any:
    kinds = set(map(type, values))
    if not kinds <= {str, _NONE}:
        values = [plain_value(value) for value in values]
        for row, value in _unlike(values, {str, int, _NONE}):
            origin.refuse(
                f"the {role} {value!r} is neither a string nor an integer",
                hint=f"write it as text, or name another column with --{role}",
                row=row,
                column=name,
            )
        values = [str(value) if type(value) is int else value for value in values]
    return pa.chunked_array([text_array(values, origin, name)])


def _seqs(values: list[Any], origin: Origin, name: str) -> Array:
    values = _plain(values, {int})
    for row, value in _unlike(values, {int}):
        if value is None:
            refuse_null(origin, "seq", row, name)
        origin.refuse(
            f"the seq {value!r} is not an integer",
            hint="number the events of a source, or name another column with --seq",
            row=row,
            column=name,
        )
    integers_fit(values, origin, name)
    return np.array(values, np.int64)


def _times(values: list[Any], origin: Origin, name: str) -> Array:
    values = _plain(values, {int, str})
    kinds = set(map(type, values))
    for row, value in _unlike(values, {int, str, datetime}):
        if value is None:
            refuse_null(origin, "time", row, name)
        origin.refuse(
            f"the time {value!r} is neither integer microseconds since 1970 (UTC) nor ISO 8601 "
            "text",
            hint="write it as 2026-01-31T09:30:00Z, or name another column with --time",
            row=row,
            column=name,
        )
    if kinds == {int}:
        integers_fit(values, origin, name)
        return np.array(values, np.int64)
    if kinds == {str}:
        return parsed_instants(text_array(values, origin, name), origin, name)
    found = np.empty(len(values), np.int64)
    for row, value in enumerate(values):
        try:
            found[row] = instant_of_text(str(value))  # also integers, and datetimes by their text
        except UsageError as error:
            origin.refuse(error.message, hint=error.hint, row=row, column=name)
    return found


def _plain(values: list[Any], usual: set[type]) -> list[Any]:
    """Subclasses and numpy scalars as the plain values they are; dates as times."""
    if set(map(type, values)) <= usual:
        return values
    return [plain_value(value) for value in values]


def _unlike(values: list[Any], kinds: set[type]) -> list[tuple[int, Any]]:
    """The rows whose value is of none of the types."""
    if set(map(type, values)) <= kinds:
        return []
    return [(row, value) for row, value in enumerate(values) if type(value) not in kinds]
