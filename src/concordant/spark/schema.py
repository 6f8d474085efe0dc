"""The schema of a DataFrame as topics with kinds, and the expressions that read its columns.

Knows Spark's types and which kind each becomes, as `files.arrow` does for Arrow's, in the same
words. Nothing here starts a job: a schema is known before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, NoReturn

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as t

from concordant.files.part import (
    DEPTH_MAX,
    Names,
    Origin,
    listed,
    refuse_reserved,
)
from concordant.language.clauses import suggestion
from concordant.model.kind import Kind
from concordant.model.topic import Topic

_KINDS: tuple[tuple[type[t.DataType], Kind], ...] = (
    (t.BooleanType, Kind.BOOL),
    (t.IntegralType, Kind.INT),
    (t.FractionalType, Kind.FLOAT),
    (t.StringType, Kind.STRING),
    (t.CharType, Kind.STRING),
    (t.VarcharType, Kind.STRING),
    (t.TimestampType, Kind.TIME),
    (t.TimestampNTZType, Kind.TIME),
    (t.DateType, Kind.TIME),
    (t.NullType, Kind.NULL),
)

CASTS = {Kind.BOOL: "boolean", Kind.INT: "bigint", Kind.FLOAT: "double", Kind.STRING: "string"}
UNREADABLE_COLUMN = "__unreadable"
"""The text of a row that the source could not read; null for all others."""

_SECOND_US = 1_000_000
_DAY_US = 86_400 * _SECOND_US

_CASE_SENSITIVE = "spark.sql.caseSensitive"

_OPTIONS = {"topic": "topic_column", "source": "source", "seq": "seq", "time": "time", "id": "id"}
"""The option that names the column of each role."""


@dataclass(frozen=True)
class Field:
    """A column, or a part of a struct: its Spark type, and where it lies."""

    type: t.DataType
    path: tuple[str, ...]
    has_twin: bool = False
    """Is there another of its name, as Spark reads names?"""

    @property
    def column(self) -> Column:
        """How Spark reads it. Made when it is asked for: the JVM has to be asked several times."""
        first, *rest = self.path
        # Not by one dotted name: its first part might be taken for the alias of a table.
        return reduce(Column.getField, rest, F.col(quoted(first)))

    @property
    def kind(self) -> Kind | None:
        """None where no predicate could compare it."""
        if isinstance(self.type, t.DecimalType) and self.type.scale <= 0:
            return Kind.INT if self.type.precision <= 18 else Kind.FLOAT
        return next((kind for known, kind in _KINDS if isinstance(self.type, known)), None)

    def value(self) -> Column:
        """The value as it travels: times are microseconds."""
        kind = self.kind
        assert kind is not None
        return self.instant() if kind is Kind.TIME else self.column.cast(CASTS[kind])

    def instant(self) -> Column:
        """Microseconds since 1970 of any column that is a time; without a zone it is UTC. Texts
        are none before the workers have read them."""
        if isinstance(self.type, t.TimestampType):
            return F.unix_micros(self.column)
        if isinstance(self.type, t.TimestampNTZType):
            # Its parts, because what Spark does with the whole goes through the session's zone.
            time = self.column
            minutes = F.hour(time) * 60 + F.minute(time)
            seconds = minutes * 60 + F.date_part(F.lit("SECOND"), time)
            return _midnight(time.cast("date")) + (seconds * _SECOND_US).cast("bigint")
        if isinstance(self.type, t.DateType):
            return _midnight(self.column)
        return self.column.cast("bigint")


def _midnight(day: Column) -> Column:
    """Microseconds since 1970 of the beginning of a day; null where they do not fit."""
    return F.try_multiply(F.unix_date(day).cast("bigint"), F.lit(_DAY_US))


def quoted(name: str) -> str:
    """The name of one column, as Spark wants to read it."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True)
class Input:
    """One DataFrame and how its columns are read."""

    frame: DataFrame
    name: str
    """What errors call it; also the source of events where it has no such column."""
    topic: str | None
    """The topic of all its rows; None where a column says it."""
    reserved: Mapping[str, Field]
    attributes: Mapping[str, Field]
    unusable: Mapping[str, Field]
    """Columns of types that no predicate could compare, or that Spark cannot tell from others; an
    error only if somebody asks for one."""
    unreadable: Field | None = None
    """Says of a row that the source could not read it."""

    def kinds(self) -> dict[str, Kind]:
        return {name: kind for name, field in self.attributes.items() if (kind := field.kind)}

    def refuse_unusable(self, name: str) -> None:
        """The sentence for a column that is there, but cannot be an attribute."""
        field = self.unusable.get(name)
        if field is None:
            return
        origin = Origin(self.name, lambda row: row)
        if field.has_twin:
            _refuse_twin(origin, name)
        origin.refuse(
            f"the column has the type {field.type.simpleString()}; an attribute is a bool, int, "
            "float, string or time",
            hint="drop the column, or flatten it into columns of these types",
            column=name,
        )

    @property
    def is_written(self) -> bool:
        """Are its times texts?"""
        return isinstance(self.reserved["time"].type, t.StringType)


def read_schema(
    frame: DataFrame, name: str, *, names: Names, topic: str | None, own_topic: bool
) -> Input:
    """The columns of a DataFrame by what they are; refuses what cannot be events."""
    origin = Origin(name, lambda row: row)
    fields = _fields(frame, origin)
    unreadable = fields.pop(UNREADABLE_COLUMN, None)
    reserved = {role: fields[column] for role, column in _roles(names) if column in fields}
    _check_roles(reserved, names, tuple(fields), origin, topic=topic, own_topic=own_topic)
    fields = {path: field for path, field in fields.items() if path not in names.all}
    refuse_reserved(origin, tuple(fields))
    _check_types(reserved, names, origin)
    rest = {path: one for path, one in fields.items() if one.kind is None or one.has_twin}
    usable = {path: one for path, one in fields.items() if path not in rest}
    given = None if "topic" in reserved else topic
    return Input(frame, name, given, reserved, usable, rest, unreadable)


def topics_of(inputs: list[Input], wanted: tuple[str, ...]) -> dict[str, Topic]:
    """Topics with the kinds of their attributes.

    A DataFrame with a topic column may hold any topic, and which ones is not known before a job:
    it is taken to hold all that are asked for and that no other input gives.
    """
    found: dict[str, Topic] = {}
    for one in inputs:
        if one.topic is not None:
            found[one.topic] = Topic(one.topic, one.kinds())
    for one in inputs:
        if one.topic is None:
            found.update({n: Topic(n, one.kinds()) for n in wanted if n not in found})
    return found


def _fields(frame: DataFrame, origin: Origin) -> dict[str, Field]:
    """All columns, and parts of structs, by their dotted names; of twins, one."""
    found = list(_flattened(frame.schema, (), origin))
    if any(field.has_twin for _, field in found):
        # Asked only now: every question to the JVM costs.
        whole = frame.sparkSession.conf.get(_CASE_SENSITIVE) == "true"
        found = list(_flattened(frame.schema, (), origin, fold=str if whole else str.lower))
    count = Counter(path for path, _ in found)
    return {
        path: replace(field, has_twin=field.has_twin or count[path] > 1) for path, field in found
    }


def _flattened(
    schema: t.StructType,
    path: tuple[str, ...],
    origin: Origin,
    *,
    fold: Callable[[str], str] = str.lower,
    has_twin: bool = False,
) -> Iterator[tuple[str, Field]]:
    """The columns below a struct; names that `fold` makes equal are one to Spark."""
    count = Counter(fold(field.name) for field in schema.fields)
    for field in schema.fields:
        inner = (*path, field.name)
        dotted = ".".join(inner)
        twin = has_twin or count[fold(field.name)] > 1
        if isinstance(field.dataType, t.StructType):
            if len(inner) >= DEPTH_MAX:
                origin.refuse(
                    f"the column nests deeper than {DEPTH_MAX} levels",
                    hint="flatten it, or drop it",
                    column=dotted,
                )
            yield from _flattened(field.dataType, inner, origin, fold=fold, has_twin=twin)
        else:
            yield dotted, Field(field.dataType, inner, twin)


_ALLOWED: dict[str, tuple[tuple[type[Any], ...], str, str]] = {
    "topic": (
        (t.StringType, t.CharType, t.VarcharType),
        "names of topics are strings",
        "cast the column to string, or name another one",
    ),
    "source": (
        (t.StringType, t.CharType, t.VarcharType, t.IntegralType),
        "it must be a string or an integer",
        "cast the column to string, or name another one",
    ),
    "seq": (
        (t.IntegralType,),
        "sequence numbers are integers",
        "cast the column to bigint, or name another one",
    ),
    "time": (
        (t.TimestampType, t.TimestampNTZType, t.DateType, t.StringType, t.IntegralType),
        "it must be a timestamp, a date, integer microseconds since 1970 (UTC) or ISO 8601 text",
        "cast the column, for example to timestamp, or name another one",
    ),
    "id": (
        (t.StringType, t.CharType, t.VarcharType, t.IntegralType),
        "it must be a string or an integer",
        "cast the column to string, or name another one",
    ),
}


def _roles(names: Names) -> Iterator[tuple[str, str]]:
    """What every event has, and the columns that are named for it."""
    return zip(("topic", "source", "seq", "time", "id"), names.all, strict=True)


def _check_roles(
    reserved: Mapping[str, Field],
    names: Names,
    found: tuple[str, ...],
    origin: Origin,
    *,
    topic: str | None,
    own_topic: bool,
) -> None:
    """Refuse events without a time, seq or topic, and columns that are named and not there."""
    if "topic" in reserved and own_topic and topic is not None:
        origin.refuse(
            f"the topic '{topic}' was given for this DataFrame, but it has a column "
            f"'{names.topic}' as well",
            hint="drop the column, or give the DataFrame by itself, and the column says the topics",
        )
    usual = dict(_roles(Names()))
    for role, name in _roles(names):
        if role in reserved and reserved[role].has_twin:
            _refuse_twin(origin, name)
        needed = role in ("time", "seq") or (role == "topic" and topic is None)
        if role in reserved or not (needed or name != usual[role]):
            continue
        why = ""
        if role == "topic":
            why = ": every event has a topic, from a column or given for all events"
        elif role == "seq":
            why = (
                ": the rows of a DataFrame have no order of their own, so that events of one time "
                "would be ordered by chance"
            )
        option = _OPTIONS[role]
        hint = f"name the column, as in {option}='…'"
        if role == "topic":
            hint = f"{hint}, or the topic of all events, as in topic='Order'"
        near = suggestion(name, found)
        origin.refuse(
            f"there is no column '{name}' for the {role}{why}; the columns are {listed(found)}",
            hint=f"{near} {hint}" if near else hint,
        )


def _refuse_twin(origin: Origin, name: str) -> NoReturn:
    origin.refuse(
        f"there are two columns '{name}': Spark tells no names apart that differ in case only, and "
        "dotted names mean nested values",
        hint="rename or drop one of them",
        column=name,
    )


def _check_types(reserved: Mapping[str, Field], names: Names, origin: Origin) -> None:
    for role, field in reserved.items():
        allowed, rule, hint = _ALLOWED[role]
        if not isinstance(field.type, allowed):
            origin.refuse(
                f"the {role} has the type {field.type.simpleString()}, and {rule}",
                hint=hint,
                column=getattr(names, role),
            )
