"""Arrow tables, and everything that can become one, to a part.

Knows the reserved columns and how structs become dotted names. Every topic of a table has all its
attribute columns. pandas, Polars and Spark are never imported: an object is asked for its Arrow
stream, or (a Spark DataFrame) for its Arrow table.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.types as at

from concordant.correlate.columns import Array, Column
from concordant.errors import UsageError
from concordant.files.arrow import (
    column_of,
    first_null,
    instants_of,
    integers_of,
    is_text,
    parsed_instants,
    plain,
    texts_of,
)
from concordant.files.part import (
    DEPTH_MAX,
    Names,
    Origin,
    Part,
    make_part,
    refuse_both_topics,
    refuse_missing_topic,
    refuse_reserved,
)
from concordant.model.kind import Kind


def is_table(value: object) -> bool:
    """Can `as_table` take it?"""
    return (
        isinstance(value, pa.Table | pa.RecordBatch)
        or hasattr(value, "__arrow_c_stream__")
        or callable(getattr(value, "toArrow", None))  # a Spark DataFrame
    )


def as_table(value: Any, name: str) -> Any:
    """An Arrow table of a table, record batch, reader or DataFrame; an unnamed index is dropped."""
    if isinstance(value, pa.Table):
        return value
    try:
        if isinstance(value, pa.RecordBatch):
            return pa.Table.from_batches([value])
        if type(value).__module__.split(".")[0] == "pandas":
            named = any(level is not None for level in value.index.names)
            return pa.Table.from_pandas(value, preserve_index=named)
        if not hasattr(value, "__arrow_c_stream__"):
            return value.toArrow()
        return pa.RecordBatchReader.from_stream(value).read_all()
    except (pa.ArrowException, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise UsageError(
            f"the {type(value).__name__} cannot become an Arrow table: {reason(error)}",
            hint="give each column one type",
            place=name,
        ) from None


def reason(error: BaseException) -> str:
    """The first line of a library's complaint, shortened."""
    text = (str(error) or type(error).__name__).strip().splitlines()[0]
    return text if len(text) <= 160 else text[:160] + "..."


def part_of_table(
    table: Any,
    origin: Origin,
    *,
    names: Names,
    topic: str | None,
    own_topic: bool,
    first: int = 1,
) -> Part:
    """A part of a table whose first row has the number `first` where there is no `seq`."""
    if table.num_rows == 0:
        origin.refuse("it is empty", hint="give an input with at least one event")
    columns = _flattened(table, origin)
    names.check(tuple(columns), origin)
    reserved = {name: columns.pop(name) for name in names.all if name in columns}
    refuse_reserved(origin, tuple(columns))
    if names.topic in reserved:
        if own_topic and topic is not None:
            refuse_both_topics(origin, names.topic, topic)
        topics = _topics_of(reserved[names.topic], origin, names.topic)
    elif topic is not None:
        topics = Column(Kind.STRING, np.zeros(table.num_rows, np.int32), None, (topic,))
    else:
        refuse_missing_topic(origin, names.topic)
    attributes: dict[tuple[str, Kind], Column] = {}
    for name, values in columns.items():
        column = column_of(values, origin, name)
        attributes[name, column.kind] = column
    kinds = dict(attributes.keys())
    ids = reserved.get(names.id)
    source, seq = reserved.get(names.source), reserved.get(names.seq)
    return make_part(
        origin,
        topic=topics,
        kinds=[dict(kinds) for _ in topics.dictionary],
        time=_times_of(reserved[names.time], origin, names.time),
        source=None if source is None else _sources_of(source, origin, names.source),
        seq=None if seq is None else _seqs_of(seq, origin, names.seq),
        ids=None if ids is None else _ids_of(ids, origin, names.id),
        numbers=np.arange(first, first + table.num_rows, dtype=np.int64),
        attributes=attributes,
    )


def _flattened(table: Any, origin: Origin) -> dict[str, Any]:
    """Columns by name, structs taken apart into dotted names."""
    found: dict[str, Any] = {}

    def add(name: str, values: Any, depth: int) -> None:
        if at.is_struct(values.type):
            if depth >= DEPTH_MAX:
                origin.refuse(
                    f"the column nests deeper than {DEPTH_MAX} levels",
                    hint="flatten it, or drop it",
                    column=name,
                )
            fields = [values.type.field(i).name for i in range(values.type.num_fields)]
            for field, inner in zip(fields, values.flatten() if fields else (), strict=True):
                add(f"{name}.{field}", inner, depth + 1)
            return
        if name in found:
            origin.refuse(
                f"there are two columns '{name}'; names of columns, also dotted ones of nested "
                "values, must differ",
                hint="rename or drop one of them",
                column=name,
            )
        found[name] = plain(values, origin, name)

    for name, values in zip(table.column_names, table.columns, strict=True):
        add(str(name), values, 1)
    return found


def _topics_of(values: Any, origin: Origin, name: str) -> Column:
    if not is_text(values.type) and not at.is_dictionary(values.type):
        origin.refuse(
            f"the topic has the type {values.type}, and names of topics are strings",
            hint="cast the column to string, or name another one with --topic-column",
            column=name,
        )
    column = texts_of(values)
    missing = _missing(column)
    if missing is not None:
        refuse_missing_topic(origin, name, missing)
    used, codes = np.unique(column.values, return_inverse=True)
    dictionary = tuple(column.dictionary[code] for code in used)
    return Column(Kind.STRING, codes.astype(np.int32), None, dictionary)


def _sources_of(values: Any, origin: Origin, name: str) -> Column:
    column = _identifiers_of(values, origin, name, "source")
    missing = _missing(column)
    if missing is not None:
        refuse_null(origin, "source", missing, name)
    return column


def _ids_of(values: Any, origin: Origin, name: str) -> Column:
    return blank_is_null(_identifiers_of(values, origin, name, "id"))


def _identifiers_of(values: Any, origin: Origin, name: str, role: str) -> Column:
    if at.is_integer(values.type) or at.is_null(values.type):
        values = values.cast(pa.string())
    elif not is_text(values.type) and not at.is_dictionary(values.type):
        origin.refuse(
            f"the {role} has the type {values.type}, and it must be a string or an integer",
            hint=f"cast the column to string, or name another one with --{role}",
            column=name,
        )
    return texts_of(values)


def _seqs_of(values: Any, origin: Origin, name: str) -> Array:
    missing = first_null(values)
    if missing is not None:
        refuse_null(origin, "seq", missing, name)
    if not at.is_integer(values.type):
        origin.refuse(
            f"the seq has the type {values.type}, and sequence numbers are integers",
            hint="cast the column to int64, or name another one with --seq",
            column=name,
        )
    return integers_of(values, origin, name)


def _times_of(values: Any, origin: Origin, name: str) -> Array:
    missing = first_null(values)
    if missing is not None:
        refuse_null(origin, "time", missing, name)
    kind = values.type
    if at.is_timestamp(kind) or at.is_date(kind):
        return instants_of(values, origin, name)
    if at.is_integer(kind):
        return integers_of(values, origin, name)
    if at.is_dictionary(kind):
        values = values.cast(pa.large_string())
    if is_text(values.type):
        return parsed_instants(values, origin, name)
    return origin.refuse(
        f"the time has the type {kind}; it must be a timestamp, a date, integer microseconds "
        "since 1970 (UTC) or ISO 8601 text",
        hint="cast the column, for example to timestamp[us], or name another one with --time",
        column=name,
    )


def refuse_null(origin: Origin, role: str, row: int, name: str) -> NoReturn:
    """Null where every event needs a value."""
    origin.refuse(
        f"the {role} is null or missing; where the column is given, every event must have it",
        hint="fill it, or drop the row" if role == "time" else "fill it, or drop the column",
        row=row,
        column=name,
    )


def blank_is_null(column: Column) -> Column:
    """Ids, of which an empty one is as good as none."""
    if "" not in column.dictionary:
        return column
    given = column.values != column.dictionary.index("")
    valid = given if column.valid is None else given & column.valid
    return Column(column.kind, np.where(valid, column.values, -1), valid, column.dictionary)


def _missing(column: Column) -> int | None:
    checked = blank_is_null(column)
    return None if checked.valid is None else int(np.argmin(checked.valid))
