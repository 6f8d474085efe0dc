"""What a step found, as one Arrow table: relations, and rows that were set aside.

Columns are made whole: Python loops go over subscriptions and distinct partition values, never over
relations, unless derived topics are in play (then only their places in the order are worked out one
by one). Knows Arrow and the kernel's records, no Spark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from concordant.correlate.columns import Array, Batch, Column
from concordant.correlate.found import Found, Records
from concordant.correlate.plan import Plan, SubscriptionPlan
from concordant.files.write import array_of
from concordant.model.kind import Kind, Value
from concordant.spark.job import ASIDE, HEAD, Job, SlotColumn
from concordant.spark.repeats import event_ids
from concordant.spark.rows import Rejected

INSTANT = pa.timestamp("us", "UTC")
TIE = pa.struct([("source", pa.string()), ("seq", pa.int64()), ("rank", pa.list_(pa.int32()))])
"""What orders relations of the same instant: the completing event, then the order of delivery."""

_ASIDE = tuple((name, pa.string()) for name in ASIDE)
"""What a row is that is no relation: bad, late, repeated; counts. Null for relations."""

_SPARSE = 16
"""Rows kept per row used, beyond which the used ones are sorted instead of marked."""

_TYPES = {
    Kind.BOOL: pa.bool_(),
    Kind.INT: pa.int64(),
    Kind.FLOAT: pa.float64(),
    Kind.STRING: pa.string(),
    Kind.TIME: INSTANT,
}


_HEAD = dict(
    zip(
        HEAD,
        (
            pa.string(),
            pa.int32(),
            pa.list_(pa.string()),
            pa.int64(),
            pa.string(),
            INSTANT,
            TIE,
        ),
        strict=True,
    )
)


def _event_fields(job: Job) -> list[Any]:
    """The fields of a relation's event that are made."""
    known = [
        ("id", pa.string()),
        ("topic", pa.string()),
        ("source", pa.string()),
        ("seq", pa.int64()),
        ("time", INSTANT),
        *((field, _TYPES[kind]) for field, (_, kind) in job.fields),
    ]
    if job.shape == "slots":
        made = {field for slot in job.slots for _, field in _shown(job, slot)}
    else:
        made = {name for name, _ in known if job.is_made("events", name)}
    return [pa.field(name, kind) for name, kind in known if name in made]


def _shown(job: Job, slot: SlotColumn) -> list[tuple[str, str]]:
    """What is made of a slot's event, and the field of an event that has it."""
    return [(name, field) for name, field in slot.fields if job.is_made(slot.name, name)]


def answer_schema(job: Job) -> Any:
    """The schema of everything that a step gives, in the shape that is wanted."""
    fields = _event_fields(job)
    kinds = {one.name: one.type for one in fields}
    if job.shape == "slots":
        shown = [
            (slot.name, pa.struct([(name, kinds[field]) for name, field in _shown(job, slot)]))
            for slot in job.slots
            if job.is_made(slot.name)
        ]
    else:
        shown = [("events", pa.list_(pa.struct(fields)))] if job.is_made("events") else []
    return pa.schema(
        [
            *(_ASIDE if job.tells else ()),
            *((name, kind) for name, kind in _HEAD.items() if job.is_made(name)),
            *shown,
        ]
    )


def found_table(job: Job, found: Found) -> Any:
    """The relations of one step, in order."""
    paths = _paths(job, found) if len(found.stages) > 1 else None
    tables = [
        _stage_table(job, found, stage, paths) for stage, one in enumerate(found.stages) if len(one)
    ]
    if not tables:
        return answer_schema(job).empty_table()
    if found.order is None:
        return tables[0]
    whole = pa.concat_tables(tables).combine_chunks()
    starts = [0, *accumulate(map(len, found.stages))]
    return whole.take([starts[stage] + index for stage, index in found.order])


def rejected_table(job: Job, rejected: Sequence[Rejected]) -> Any:
    """Rows that were set aside, each with its one event as far as it is known."""
    if not job.tells or job.shape == "slots":  # a slot has no place for them
        return answer_schema(job).empty_table()
    rows = [
        {
            "what": one.what,
            "reason": one.reason,
            "events": [
                {
                    "id": None if None in (one.source, one.seq) else f"{one.source}:{one.seq}",
                    "topic": one.topic,
                    "source": one.source,
                    "seq": one.seq,
                    "time": one.time,
                    **{field: one.attributes.get(wanted) for field, wanted in job.fields},
                }
            ],
        }
        for one in rejected
    ]
    return pa.Table.from_pylist(rows, answer_schema(job))


def key_and_ordinal(row: Any) -> tuple[str, int]:
    """What the id of a relation says beside its subscription: the key as JSON, and its number."""
    head = f"{row['subscription']}/{row['conjunction']}"
    key, _, ordinal = row["id"].removeprefix(head).rpartition("/")
    return key, int(ordinal)


def told(job: Job, what: str, value: Any) -> Any:
    """One row that carries a value as JSON, beside relations."""
    if not job.tells:
        return answer_schema(job).empty_table()
    text = msgspec.json.encode(value).decode()
    return pa.Table.from_pylist([{"what": what, "reason": text}], answer_schema(job))


def _stage_table(job: Job, found: Found, stage: int, paths: _Paths | None) -> Any:
    records = found.stages[stage]
    count, listed = len(records), len(records.events)
    wanted, place = _used(np.concatenate([records.events, records.row]), records.rows.count)
    events = records.rows.take(wanted)
    at, base = records.at - found.base_position, found.base
    columns = _identities(job, found, stage, events, place[listed:])
    if job.is_made("at"):
        columns["at"] = pa.array(base.time[at], INSTANT)
    if job.is_made("tie"):
        rank = _ranks(job, found, stage) if paths is None else paths.ranks(stage)
        columns["tie"] = pa.StructArray.from_arrays(
            [array_of(base.source.take(at)), pa.array(base.seq[at]), rank], fields=list(TIE)
        )
    if job.shape == "slots":
        conjunction = _numbers(found, stage)
        columns |= _slots(job, events, conjunction, records.start[:-1], place[:listed])
    elif job.is_made("events"):
        known = pa.StructArray.from_arrays(
            [*_events(job, events).values()], fields=_event_fields(job)
        )
        starts = pa.array(records.start, pa.int32())
        columns["events"] = pa.ListArray.from_arrays(starts, known.take(pa.array(place[:listed])))
    if job.tells:
        columns |= {name: pa.nulls(count, kind) for name, kind in _ASIDE}
    schema = answer_schema(job)
    return pa.table([columns[name] for name in schema.names], schema=schema)


def _used(rows: Array, count: int) -> tuple[Array, Array]:
    """The rows that occur, ascending, and where each of those given is among them."""
    if count > _SPARSE * len(rows):
        return np.unique(rows, return_inverse=True)
    used = np.zeros(count, np.bool_)
    used[rows] = True
    return np.flatnonzero(used), (np.cumsum(used) - 1)[rows]


def _events(job: Job, batch: Batch) -> dict[str, Any]:
    """The fields of events that are made."""
    attributes = dict(job.fields)
    return {one.name: _event_field(batch, one, attributes) for one in _event_fields(job)}


def _event_field(batch: Batch, field: Any, attributes: Mapping[str, tuple[str, Kind]]) -> Any:
    match field.name:
        case "id":
            return event_ids(batch)
        case "topic":
            return array_of(Column(Kind.STRING, batch.topic, None, batch.topic_names))
        case "source":
            return array_of(batch.source)
        case "seq":
            return pa.array(batch.seq)
        case "time":
            return pa.array(batch.time, INSTANT)
    column = batch.attributes.get(attributes[field.name])
    return pa.nulls(len(batch), field.type) if column is None else array_of(column)


def _slots(
    job: Job, events: Batch, conjunction: Array, start: Array, place: Array
) -> dict[str, Any]:
    """The events of relations, a column for each slot; nulls where a conjunction has it not."""
    known = _events(job, events)
    columns = {}
    for slot in job.slots:
        shown = _shown(job, slot)
        if not shown:
            continue
        where = np.full(len(start), -1)
        for number, at in slot.places.items():
            mine = conjunction == number
            where[mine] = place[start[mine] + at]
        absent = None if slot.everywhere else pa.array(where < 0)
        taken = pa.array(where, mask=None if slot.everywhere else where < 0)
        fields = [known[field].take(taken) for _, field in shown]
        names = [name for name, _ in shown]
        columns[slot.name] = pa.StructArray.from_arrays(fields, names=names, mask=absent)
    return columns


# --- who a relation is ----------------------------------------------------------------------------


def _identities(
    job: Job, found: Found, stage: int, events: Batch, completing: Array
) -> dict[str, Any]:
    """Those of the columns subscription, conjunction, key, position, id that are made."""
    records = found.stages[stage]
    pieces: list[dict[str, Any]] = []
    order: list[Array] = []
    for plan, rows in _by_subscription(found, stage):
        numbers = [one.number for one in plan.conjunctions]
        conjunction = records.conjunction[rows]
        piece: dict[str, Any] = {}
        if job.is_made("subscription"):
            piece["subscription"] = pa.nulls(len(rows), pa.string()).fill_null(plan.name)
        if job.is_made("conjunction"):
            piece["conjunction"] = pa.array(np.array(numbers, np.int32)[conjunction])
        if job.is_made("position"):
            piece["position"] = pa.array(records.position[rows])
        if job.is_made("key") or job.is_made("id"):
            piece["key"], text = _keys(found.plan, plan, events, completing[rows])
        if job.is_made("id"):
            heads = pa.array([f"{plan.name}/{number}" for number in numbers])
            ordinal = pa.array(records.ordinal[rows]).cast(pa.string())
            head = heads.take(pa.array(conjunction))
            piece["id"] = pc.binary_join_element_wise(head, text, ordinal, "")
        pieces.append(piece)
        order.append(rows)
    if len(pieces) == 1:
        return pieces[0]
    back = pa.array(np.argsort(np.concatenate(order), kind="stable"))
    return {name: pa.concat_arrays([one[name] for one in pieces]).take(back) for name in pieces[0]}


def _numbers(found: Found, stage: int) -> Array:
    """The number of each relation's conjunction."""
    numbers = np.zeros(len(found.stages[stage]), np.int32)
    for plan, rows in _by_subscription(found, stage):
        known = np.array([one.number for one in plan.conjunctions], np.int32)
        numbers[rows] = known[found.stages[stage].conjunction[rows]]
    return numbers


def _by_subscription(found: Found, stage: int) -> Iterator[tuple[SubscriptionPlan, Array]]:
    """The relations of each subscription that has any."""
    which = found.stages[stage].subscription
    if which[0] == which[-1] and bool((which == which[0]).all()):
        split = [np.arange(len(which))]
    else:
        order = np.argsort(which, kind="stable")
        split = np.split(order, np.flatnonzero(np.diff(which[order])) + 1)
    for rows in split:
        yield found.plan.subscriptions[found.first[stage] + int(which[rows[0]])], rows


def _keys(plan: Plan, one: SubscriptionPlan, events: Batch, rows: Array) -> tuple[Any, Any]:
    """The partition values of events as lists of text, and as JSON text between slashes for ids."""
    count = len(rows)
    names = one.subscription.partition_by
    if not names:
        nothing = pa.array(np.zeros(count + 1, np.int32))
        lists = pa.ListArray.from_arrays(nothing, pa.array([], pa.string()))
        return lists, pa.nulls(count, pa.string()).fill_null("/")
    before = ["[", *[","] * (len(names) - 1)]
    after = [*[""] * (len(names) - 1), "]/"]
    texts, parts = [], []
    for name, left, right in zip(names, before, after, strict=True):
        kinds = [plan.schemas[topic].kind(name) for topic in one.subscription.topics]
        kind = next((k for k in kinds if k is not None and k is not Kind.NULL), Kind.NULL)
        values, codes = _distinct(events, rows, name, kind)
        shown = [_plain(value) for value in values]
        text = [v if v is None or isinstance(v, str) else _json(v) for v in shown]
        taken = pa.array(codes)
        texts.append(pa.array(text, pa.string()).take(taken))
        json = [f"{left}{_json(v)}{right}" for v in shown]
        parts.append(pa.array(json, pa.string()).take(taken))
    width = len(names)
    flat = texts[0]
    if width > 1:
        woven = np.arange(count)[:, None] + count * np.arange(width)
        flat = pa.concat_arrays(texts).take(pa.array(woven.ravel()))
    lists = pa.ListArray.from_arrays(
        pa.array(np.arange(0, count * width + 1, width), pa.int32()), flat
    )
    return lists, parts[0] if width == 1 else pc.binary_join_element_wise(*parts, "")


def _distinct(events: Batch, rows: Array, name: str, kind: Kind) -> tuple[list[Value], Array]:
    """Values of an attribute, each once, and for rows the place of theirs among them."""
    if name == "time":
        column = Column(Kind.INT, events.time[rows])
    elif name == "seq":
        column = Column(Kind.INT, events.seq[rows])
    elif name == "source":
        column = events.source.take(rows)
    elif (name, kind) in events.attributes:
        column = events.attributes[name, kind].take(rows)
    else:
        return [None], np.zeros(len(rows), np.int64)
    if column.kind is Kind.NULL:
        return [None], np.zeros(len(rows), np.int64)
    values, valid = column.values, column.valid
    if column.kind is Kind.STRING and len(column.dictionary) <= len(rows):
        return [*column.dictionary, None], np.where(values < 0, len(column.dictionary), values)
    if column.kind is Kind.FLOAT:  # NaN is no value, and the two zeros are one
        number = ~np.isnan(values)
        valid = number if valid is None else valid & number
        values = np.where(valid, values, 0.0) + 0.0
    encoded = pa.array(values).dictionary_encode()
    found, codes = encoded.dictionary.to_numpy(zero_copy_only=False), encoded.indices.to_numpy()
    listed: list[Value] = found.tolist()
    if column.kind is Kind.STRING:
        listed = [column.dictionary[code] if code >= 0 else None for code in found]
    return [*listed, None], codes if valid is None else np.where(valid, codes, len(listed))


def _plain(value: Value) -> Value:
    """JSON has no infinity, which is a partition of its own: it becomes text."""
    return str(value) if isinstance(value, float) and not np.isfinite(value) else value


def _json(value: Value) -> str:
    return msgspec.json.encode(value).decode()


# --- where a relation stands ----------------------------------------------------------------------


def _ranks(job: Job, found: Found, stage: int) -> Any:
    """Without derived topics: the subscription's place, then the conjunction's."""
    records = found.stages[stage]
    places = _places(job, found, stage)
    ranks = np.stack(
        [np.zeros(len(records), np.int32), places[records.subscription], records.conjunction], 1
    ).astype(np.int32)
    starts = pa.array(np.arange(0, ranks.size + 1, 3), pa.int32())
    return pa.ListArray.from_arrays(starts, pa.array(ranks.ravel()))


def _places(job: Job, found: Found, stage: int) -> Array:
    """The place in the whole order of delivery of each subscription of a stage."""
    names = [one.name for one in found.plan.subscriptions[found.first[stage] :]]
    return np.array([job.ranks[name] for name in names], np.int64)


class _Paths:
    """Places in the order of delivery where derived events complete relations.

    The kernel delivers by (what completed it, subscription, conjunction), and what completed it is
    an event of the input or one derived by a relation that has such a place itself. Written out as
    numbers, places of different buckets compare as the kernel compares them in one.
    """

    def __init__(self) -> None:
        self.stages: list[list[list[int]]] = []
        self.emitted: dict[tuple[str, int], list[int]] = {}

    def ranks(self, stage: int) -> Any:
        return pa.array(self.stages[stage], pa.list_(pa.int32()))


def _paths(job: Job, found: Found) -> _Paths:
    paths = _Paths()
    for stage, records in enumerate(found.stages):
        places = _places(job, found, stage)
        paths.stages.append(
            [_path(found, stage, index, places, paths) for index in range(len(records))]
        )
    return paths


def _path(found: Found, stage: int, index: int, places: Array, paths: _Paths) -> list[int]:
    records: Records = found.stages[stage]
    relation = found.relation(stage, index)
    completing = records.rows.event(int(records.row[index]))
    depth = found.plan.topic_depth.get(completing.topic)
    if depth is None:
        trigger = [0]
    else:
        trigger = [depth, *paths.emitted[completing.source, completing.seq]]
    subscription = int(records.subscription[index])
    path = [*trigger, int(places[subscription]), int(records.conjunction[index])]
    # The name that an event derived from this relation has (see model.emission).
    source = relation.subscription + (f"/{relation.key_text}" if relation.key else "")
    paths.emitted[source, relation.position] = path
    return path
