"""The schema of a DataFrame as topics with kinds, and the expressions that read its columns.

Knows Spark's types and which kind each becomes, as `files.arrow` does for Arrow's, in the same
words. Nothing here starts a job: a schema is known before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql import types as t

from concordant.files.part import (
    DEPTH_MAX,
    Names,
    Origin,
    refuse_both_topics,
    refuse_missing_topic,
    refuse_reserved,
)
from concordant.files.times import USUAL
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

_NO_SECONDS = r"([T ][0-9]{2}:[0-9]{2})(Z|[+-][0-9]{2}:[0-9]{2})?$"
_DAY_US = 86_400_000_000
_EPOCH = "timestamp_ntz'1970-01-01 00:00:00'"


@dataclass(frozen=True)
class Field:
    """A column, or a part of a struct: its Spark type, and where it lies."""

    type: t.DataType
    path: tuple[str, ...]

    @property
    def column(self) -> Column:
        """How Spark reads it. Made when it is asked for: the JVM has to be asked several times."""
        return F.col(".".join("`" + name.replace("`", "``") + "`" for name in self.path))

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
        """Microseconds since 1970 of any column that can be a time; without a zone it is UTC."""
        if isinstance(self.type, t.TimestampType):
            return F.unix_micros(self.column)
        if isinstance(self.type, t.TimestampNTZType):
            return F.timestamp_diff("MICROSECOND", F.expr(_EPOCH), self.column)
        if isinstance(self.type, t.DateType):
            return F.unix_date(self.column).cast("bigint") * F.lit(_DAY_US)
        if isinstance(self.type, t.StringType):
            return _text_instant(self.column)
        return self.column.cast("bigint")


def _text_instant(text: Column) -> Column:
    """Microseconds of ISO 8601 text or of an integer; null where it is neither."""
    usual = text.rlike(USUAL)
    zoned = text.rlike(r"(Z|[+-][0-9]{2}:[0-9]{2})$")
    day = text.rlike(r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")
    # Spark wants seconds before a zone.
    full = F.regexp_replace(text, _NO_SECONDS, "$1:00$2")
    whole = F.when(zoned, full).when(day, F.concat(text, F.lit("T00:00:00Z")))
    moment = F.unix_micros(F.try_to_timestamp(whole.otherwise(F.concat(full, F.lit("Z")))))
    return F.when(usual | day, moment).otherwise(text.try_cast("bigint"))


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
    unusable: Mapping[str, t.DataType]
    """Columns of types that no predicate could compare; an error only if somebody asks for one."""
    unreadable: Field | None = None
    """Says of a row that the source could not read it."""

    def kinds(self) -> dict[str, Kind]:
        return {name: kind for name, field in self.attributes.items() if (kind := field.kind)}

    def refuse_unusable(self, name: str) -> None:
        """The sentence for a column that is there, but of a type with no order."""
        if name in self.unusable:
            Origin(self.name, lambda row: row).refuse(
                f"the column has the type {self.unusable[name].simpleString()}; an attribute is a "
                "bool, int, float, string or time",
                hint="drop the column, or flatten it into columns of these types",
                column=name,
            )


def read_schema(
    frame: DataFrame, name: str, *, names: Names, topic: str | None, own_topic: bool
) -> Input:
    """The columns of a DataFrame by what they are; refuses what cannot be events."""
    origin = Origin(name, lambda row: row)
    fields: dict[str, Field] = {}
    for path, field in _flattened(frame.schema, (), origin):
        if path in fields:
            origin.refuse(
                f"there are two columns '{path}'; names of columns, also dotted ones of nested "
                "values, must differ",
                hint="rename or drop one of them",
                column=path,
            )
        fields[path] = field
    unreadable = fields.pop(UNREADABLE_COLUMN, None)
    names.check(tuple(fields), origin)
    reserved = {
        role: fields.pop(column)
        for role, column in zip(("topic", "source", "seq", "time", "id"), names.all, strict=True)
        if column in fields
    }
    refuse_reserved(origin, tuple(fields))
    if "topic" in reserved and own_topic and topic is not None:
        refuse_both_topics(origin, names.topic, topic)
    if "topic" not in reserved and topic is None:
        refuse_missing_topic(origin, names.topic)
    if "seq" not in reserved:
        origin.refuse(
            f"there is no column '{names.seq}', and the rows of a DataFrame have no order of their "
            "own: events of one time would be ordered by chance",
            hint="name the column that numbers the events of a source, as in seq='offset'",
        )
    _check_types(reserved, names, origin)
    usable = {path: field for path, field in fields.items() if field.kind is not None}
    rest = {path: field.type for path, field in fields.items() if field.kind is None}
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


def _flattened(
    schema: t.StructType, path: tuple[str, ...], origin: Origin
) -> Iterator[tuple[str, Field]]:
    for field in schema.fields:
        inner = (*path, field.name)
        dotted = ".".join(inner)
        if isinstance(field.dataType, t.StructType):
            if len(inner) >= DEPTH_MAX:
                origin.refuse(
                    f"the column nests deeper than {DEPTH_MAX} levels",
                    hint="flatten it, or drop it",
                    column=dotted,
                )
            yield from _flattened(field.dataType, inner, origin)
        else:
            yield dotted, Field(field.dataType, inner)


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


def _check_types(reserved: Mapping[str, Field], names: Names, origin: Origin) -> None:
    for role, field in reserved.items():
        allowed, rule, hint = _ALLOWED[role]
        if not isinstance(field.type, allowed):
            origin.refuse(
                f"the {role} has the type {field.type.simpleString()}, and {rule}",
                hint=hint,
                column=getattr(names, role),
            )
