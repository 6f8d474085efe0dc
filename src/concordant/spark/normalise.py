"""DataFrames of any shape to travelling rows: only what is asked for, in the columns it travels in.

Unary predicates and column pruning happen here, in the JVM, before a row reaches Python. A filter
may let through more than the kernel admits, never less. Knows DataFrames and jobs; starts nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from concordant.model.expression import Attribute, Constant, Expression, attributes_of
from concordant.model.kind import INT_MIN, Kind
from concordant.model.predicate import Comparison
from concordant.model.topic import Topic
from concordant.spark.job import Job
from concordant.spark.layout import SubscriptionSet
from concordant.spark.rows import (
    ID,
    MARK,
    SEQ,
    SET,
    SOURCE,
    TIME,
    TOPIC,
    UNREADABLE,
    WRITTEN,
    attribute_column,
    whole_numbers,
)
from concordant.spark.schema import CASTS, Input, quoted

ALTERNATIVES_MAX = 32
"""Filters of one topic that are tried in the JVM; with more, the kernel's index is better."""

_EXACT_MAX = 2**53
"""Integers below are floats exactly, so that Spark compares them as we do."""

SURELY_A_TIME = (
    r"^([+-]?[0-9]{1,18}|([1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
    r"-((0[1-9]|1[0-2])-(0[1-9]|1[0-9]|2[0-8])|(0[13-9]|1[0-2])-(29|30)|(0[13578]|1[02])-31)"
    r"[T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,6})?)?"
    r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])?)$"
)
"""Texts that workers take for times, if not all of them: others go on, whatever else they say."""

_OPS: dict[str, Callable[[Column, Column], Column]] = {
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def travelling(inputs: Sequence[Input], job: Job, *, progress: str | None = None) -> DataFrame:
    """All rows that some subscription may want, one copy for each set that may.

    Rows of the topic `progress` travel as marks. Where times are texts in some input, they travel
    as they are, in a column more.
    """
    written = any(each.is_written for each in inputs)
    return reduce(DataFrame.unionAll, [_one(each, job, progress, written) for each in inputs])


def _one(given: Input, job: Job, progress: str | None, written: bool) -> DataFrame:
    fields = given.reserved
    source = fields[SOURCE].column.cast("string") if SOURCE in fields else F.lit(given.name)
    time = fields[TIME]
    columns = [
        _topic_code(given, job, progress).alias(TOPIC),
        F.when(source != "", source).alias(SOURCE),
        fields[SEQ].column.cast("bigint").alias(SEQ),
        (F.lit(None).cast("bigint") if given.is_written else time.instant()).alias(TIME),
        _given_id(given).alias(ID),
    ]
    for name, kind in job.columns:
        columns.append(_attribute(given, job, name, kind).alias(attribute_column(name, kind)))
    if written:
        text = time.column if given.is_written else F.lit(None)
        columns.append(text.cast("string").alias(WRITTEN))
    frame = given.frame.select(*columns)
    time_column = WRITTEN if given.is_written else TIME
    wanted = [_wanted(one, job, time_column) for one in job.sets]
    if len(wanted) == 1:
        return frame.filter(wanted[0]).select(F.lit(0).alias(SET), "*")
    numbers = F.array(*(F.when(column, F.lit(index)) for index, column in enumerate(wanted)))
    return frame.select(F.explode(F.array_compact(numbers)).alias(SET), "*")


def _given_id(given: Input) -> Column:
    """As it is: that it says `source:seq` anyway, workers find out sooner (`without_own_ids`)."""
    if ID not in given.reserved:
        return F.lit(None).cast("string")
    return given.reserved[ID].column.cast("string")


def _topic_code(given: Input, job: Job, progress: str | None) -> Column:
    codes = {topic.name: code for code, topic in enumerate(job.topics)}
    if progress is not None:
        codes[progress] = MARK
    found = _named_code(given, codes, len(job.topics))
    if given.unreadable is not None:
        found = F.when(given.unreadable.column.isNotNull(), F.lit(UNREADABLE)).otherwise(found)
    return found.cast("int")


def _named_code(given: Input, codes: Mapping[str, int], unknown: int) -> Column:
    if given.topic is not None:
        return F.lit(codes.get(given.topic, unknown))
    name = given.reserved["topic"].column.cast("string")
    found = F.lit(unknown)  # a topic that nobody asks for: filtered out below
    for topic, code in codes.items():
        found = F.when(name == topic, F.lit(code)).otherwise(found)
    return F.when(name.isNull() | (name == ""), F.lit(None)).otherwise(found)


def _attribute(given: Input, job: Job, name: str, kind: Kind) -> Column:
    field = given.attributes.get(name)
    if field is None or field.kind is not kind:
        return F.lit(None).cast(CASTS[Kind.INT if kind is Kind.TIME else kind])
    return field.value()


def bucket(job: Job, count: int) -> Column:
    """The bucket of a travelling row, from 0 to below `count`; rows of one partition share it."""
    numbers: list[Column] = []
    for index, one in enumerate(job.sets):
        key = [column for name in one.key for column in _key_columns(job, name)]
        hashed = F.pmod(F.xxhash64(F.lit(index), *key), F.lit(count)).cast("int")
        numbers.append(hashed)
    if len(numbers) == 1:
        return numbers[0]
    found = numbers[-1]
    for index, number in enumerate(numbers[:-1]):
        found = F.when(F.col(SET) == index, number).otherwise(found)
    return found


def _key_columns(job: Job, name: str) -> list[Column]:
    """Columns whose equality is the equality of partition values.

    The time is none: as a text it can be written in several ways, and the rest of the key will do.
    """
    if name == TIME:
        return []
    if name in (SOURCE, SEQ):
        return [F.col(name)]
    found = []
    for attribute, kind in job.columns:
        if attribute == name:
            column = _column(name, kind)
            if kind is Kind.FLOAT:  # NaN counts as null, and the two zeros are one value
                column = F.when(~F.isnan(column), column + F.lit(0.0))
            found.append(column)
    return found


# --- unary predicates -----------------------------------------------------------------------------


def _wanted(one: SubscriptionSet, job: Job, time: str) -> Column:
    """May some subscription of the set want the row? Rows without a topic go on, to be told.

    `time` is the column of the time: numbers are compared, texts are not.
    """
    codes = {topic.name: code for code, topic in enumerate(job.topics)}
    whole = [MARK, UNREADABLE]  # and topics of which any event may be wanted
    some: list[Column] = []
    tested: list[int] = []
    for name in one.topics if any(s.name not in job.muted for s in one.subscriptions) else ():
        admitted = _admitted(one, job.topics[codes[name]], job, time)
        if admitted is None:
            whole.append(codes[name])
        else:
            some.append((F.col(TOPIC) == codes[name]) & admitted)
            tested.append(codes[name])
    if tested:
        some.append(F.col(TOPIC).isin(tested) & _broken(job, time))
    # In one list, because Spark works the topic's code out anew wherever it is mentioned.
    wanted = F.coalesce(F.col(TOPIC), F.lit(MARK)).isin(whole)
    return F.coalesce(reduce(operator.or_, some, wanted), F.lit(False))


def _admitted(one: SubscriptionSet, topic: Topic, job: Job, time: str) -> Column | None:
    """What every event that can enter a queue satisfies; None if that may be any."""
    alternatives: dict[str, Column] = {}
    cases = one.alternatives(topic.name)
    if cases is None or job.unique_us:  # ids are compared before anything is filtered
        return None
    for case in cases:
        tests = [test for each in case if (test := _test(each, topic, job, time)) is not None]
        if not tests or len(alternatives) == ALTERNATIVES_MAX:
            return None
        whole = reduce(operator.and_, (test for _, test in tests))
        alternatives[" and ".join(text for text, _ in tests)] = whole
    return reduce(operator.or_, alternatives.values())


def _broken(job: Job, time: str) -> Column:
    """Is a row no event? It goes on, so that this is told (see `rows`)."""
    found = [F.col(name).isNull() for name in (time, SEQ, SOURCE)]
    found += [F.col(quoted(name)) < F.lit(INT_MIN) for name in whole_numbers(job)]
    if time == WRITTEN:
        found.append(~F.col(time).rlike(SURELY_A_TIME))
    return reduce(operator.or_, found)


def _test(predicate: Comparison, topic: Topic, job: Job, time: str) -> tuple[str, Column] | None:
    """A predicate on one slot as a column, where Spark's answer is never a wrong no."""
    sides = (predicate.left, predicate.right)
    if time != TIME and any(one.name == TIME for side in sides for one in attributes_of(side)):
        return None
    left, right = (_side(side, topic, job) for side in sides)
    if left is None or right is None:
        return None
    kinds = {left[0], right[0]}
    mixed = kinds == {Kind.INT, Kind.FLOAT} and (left[2] or right[2])
    if len(kinds) > 1 and not mixed:
        return None
    return str(predicate), _OPS[predicate.op](left[1], right[1])


def _side(expression: Expression, topic: Topic, job: Job) -> tuple[Kind, Column, bool] | None:
    """Kind, column, and whether it is a number that integers and floats hold alike."""
    if isinstance(expression, Constant):
        value = expression.value
        known = Kind.INT if expression.kind is Kind.TIME else expression.kind
        return known, F.lit(value), isinstance(value, int | float) and abs(value) < _EXACT_MAX
    if not isinstance(expression, Attribute):
        return None
    reserved = {TIME: Kind.INT, SEQ: Kind.INT, SOURCE: Kind.STRING}
    if expression.name in reserved:
        return reserved[expression.name], F.col(expression.name), False
    kind = topic.attributes.get(expression.name, Kind.NULL)
    if (expression.name, kind) not in job.columns:
        return None
    shown = Kind.INT if kind is Kind.TIME else kind
    return shown, _column(expression.name, kind), False


def _column(name: str, kind: Kind) -> Column:
    return F.col(quoted(attribute_column(name, kind)))
