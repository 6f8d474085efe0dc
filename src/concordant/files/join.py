"""Parts to one batch: columns merged, kinds agreed, identities checked.

Rows keep the order in which the inputs were given. One topic may come from several inputs: int and
float then give float (if no integer changes by it), null gives way to every kind, and any other
difference is refused with both inputs. Vectorised: Python loops go over columns and distinct
strings, never over rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NoReturn

import numpy as np

from concordant.correlate.columns import DTYPES, Array, Batch, Column
from concordant.errors import UsageError
from concordant.files.part import TOPIC_COUNT_MAX, Part
from concordant.model.kind import Kind
from concordant.model.topic import Topic, schemas


def join(parts: Sequence[Part]) -> Batch:
    """All rows of all parts, part after part."""
    batch = parts[0].batch if len(parts) == 1 else _joined(parts)
    if len(parts) > 1:
        _check_sources(parts)
    _check_identities(batch, parts)
    return batch


def agreed(one: Kind, other: Kind) -> Kind | None:
    """The kind of an attribute that is `one` here and `other` there, or None."""
    if one is other or other is Kind.NULL:
        return one
    if one is Kind.NULL:
        return other
    return Kind.FLOAT if one.numeric and other.numeric else None


def inexact_row(column: Column) -> int | None:
    """The first row whose integer is not a float exactly, if any."""
    floats = column.values.astype(np.float64)
    with np.errstate(invalid="ignore"):
        # The float 2**63 has no int64, so it is compared as a float that is too large.
        wrong = (floats >= 2.0**63) | (floats.astype(np.int64) != column.values)
    if column.valid is not None:
        wrong &= column.valid
    return int(np.argmax(wrong)) if wrong.any() else None


def merged_texts(dictionaries: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[Array]]:
    """One dictionary of several, and for each the new codes; the last code is for null."""
    merged = tuple(dict.fromkeys(chain.from_iterable(dictionaries)))
    codes = {text: code for code, text in enumerate(merged)}
    recodes = []
    for dictionary in dictionaries:
        recode = np.full(len(dictionary) + 1, -1, np.int32)
        recode[:-1] = np.fromiter(map(codes.__getitem__, dictionary), np.int32, len(dictionary))
        recodes.append(recode)
    return merged, recodes


def _joined(parts: Sequence[Part]) -> Batch:
    kinds = _agreed_schemas(parts)
    topics = schemas(Topic(name, attributes) for name, attributes in kinds.items())
    codes = {name: code for code, name in enumerate(topics)}
    recoded = [
        np.array([codes[name] for name in part.batch.topics], np.int32)[part.batch.topic]
        for part in parts
    ]
    sources, recodes = merged_texts([part.batch.source.dictionary for part in parts])
    source = np.concatenate(
        [recode[part.batch.source.values] for part, recode in zip(parts, recodes, strict=True)]
    )
    return Batch(
        topics,
        np.concatenate(recoded),
        Column(Kind.STRING, source, None, sources),
        np.concatenate([part.batch.seq for part in parts]),
        np.concatenate([part.batch.time for part in parts]),
        _merged_attributes(parts, kinds),
        _merged_ids(parts),
    )


def _agreed_schemas(parts: Sequence[Part]) -> dict[str, dict[str, Kind]]:
    found: dict[str, dict[str, Kind]] = {}
    first: dict[tuple[str, str], Part] = {}
    for part in parts:
        for topic in part.batch.topics.values():
            schema = found.setdefault(topic.name, {})
            for name, kind in topic.attributes.items():
                known = schema.get(name, Kind.NULL)
                kept = agreed(known, kind)
                if kept is None:
                    raise UsageError(
                        f"the attribute '{name}' of topic '{topic.name}' is {kind} here and "
                        f"{known} in {first[topic.name, name].origin.name}; within a topic it has "
                        "one kind",
                        hint="write both inputs alike, or give them different topics",
                        place=part.origin.place(column=name),
                    )
                schema[name] = kept
                if kind is not Kind.NULL:
                    first.setdefault((topic.name, name), part)
    if len(found) > TOPIC_COUNT_MAX:
        raise UsageError(
            f"there are {len(found)} topics in all inputs, and {TOPIC_COUNT_MAX} are allowed",
            hint="choose as topic the column that names the type of event, not its instance",
        )
    return found


def _merged_attributes(
    parts: Sequence[Part], kinds: Mapping[str, Mapping[str, Kind]]
) -> dict[tuple[str, Kind], Column]:
    """Each column of each part goes to the kind its topics agreed on, rows of some topics apart."""
    pieces: dict[tuple[str, Kind], list[tuple[int, Column]]] = {}
    offset = 0
    for part in parts:
        batch = part.batch
        for (name, kind), column in batch.attributes.items():
            targets: dict[Kind, list[int]] = {}
            for code, topic in enumerate(batch.topics.values()):
                if topic.attributes.get(name) is kind:
                    targets.setdefault(kinds[topic.name][name], []).append(code)
            for target, holders in targets.items():
                moved = column
                if len(targets) > 1:
                    own = np.isin(batch.topic, holders)
                    valid = own if column.valid is None else own & column.valid
                    moved = Column(kind, column.values, valid, column.dictionary)
                if target is Kind.FLOAT and kind is Kind.INT:
                    moved = _as_float(moved, part, name)
                pieces.setdefault((name, target), []).append((offset, moved))
        offset += len(batch)
    return {key: merged_column(key[1], found, offset) for key, found in pieces.items()}


def _as_float(column: Column, part: Part, name: str) -> Column:
    row = inexact_row(column)
    if row is not None:
        part.origin.refuse(
            f"the integer {column.values[row]} is no float exactly, and another input has floats "
            f"in '{name}'",
            hint="write both inputs alike",
            row=row,
            column=name,
        )
    return Column(Kind.FLOAT, column.values.astype(np.float64), column.valid)


def merged_column(kind: Kind, pieces: Sequence[tuple[int, Column]], count: int) -> Column:
    """One column of pieces that each begin at an offset; rows of none are null."""
    values = np.full(count, -1 if kind is Kind.STRING else 0, DTYPES[kind])
    valid = np.zeros(count, np.bool_)
    dictionary: tuple[str, ...] = ()
    recodes: list[Array] = []
    if kind is Kind.STRING:
        dictionary, recodes = merged_texts([column.dictionary for _, column in pieces])
    for index, (offset, column) in enumerate(pieces):
        if column.kind is Kind.NULL:
            continue
        rows = slice(offset, offset + len(column.values))
        new = recodes[index][column.values] if recodes else column.values
        if column.valid is None:
            values[rows] = new
            valid[rows] = True
        else:
            values[rows][column.valid] = new[column.valid]
            valid[rows] |= column.valid
    return Column(kind, values, None if valid.all() else valid, dictionary)


def _merged_ids(parts: Sequence[Part]) -> Column | None:
    pieces = []
    offset = 0
    for part in parts:
        if part.batch.ids is not None:
            pieces.append((offset, part.batch.ids))
        offset += len(part.batch)
    return merged_column(Kind.STRING, pieces, offset) if pieces else None


# --- identities: (source, seq) and ids ------------------------------------------------------------


def _check_sources(parts: Sequence[Part]) -> None:
    """Refuse a source that several inputs share where line numbers stand in for seq."""
    holders: dict[str, Part] = {}
    for part in parts:
        used = np.unique(part.batch.source.values)
        for code in used:
            name = part.batch.source.dictionary[code]
            other = holders.setdefault(name, part)
            if other is part or (other.seq_given and part.seq_given):
                continue
            raise UsageError(
                f"the source '{name}' is also in {other.origin.name}, and an input has no seq: "
                "ties in time would be decided by chance",
                hint="add a seq column to both, or give them different sources",
                place=part.origin.name,
            )


def _check_identities(batch: Batch, parts: Sequence[Part]) -> None:
    pair = _repeated_pair(batch.source.values, batch.seq)
    if pair is not None:
        row = pair[1]
        _refuse_repeated(
            parts,
            pair,
            f"source '{batch.source.value(row)}' and seq {batch.seq[row]}",
            "number the events of each source without repeating",
        )
    if batch.ids is None:
        return
    given = np.ones(len(batch), np.bool_) if batch.ids.valid is None else batch.ids.valid
    rows = np.flatnonzero(given)
    codes = batch.ids.values[rows]
    order = np.argsort(codes, kind="stable")
    equal = np.flatnonzero(codes[order][1:] == codes[order][:-1])
    if len(equal):
        at = equal[np.argmin(order[equal + 1])]
        pair = (int(rows[order[at]]), int(rows[order[at + 1]]))
        _refuse_repeated(
            parts, pair, f"id '{batch.ids.value(pair[1])}'", "give each event an id of its own"
        )
    if len(rows) == len(batch):
        return
    own = {batch.ids.value(int(row)): int(row) for row in rows}
    for row in np.flatnonzero(~given).tolist():
        other = own.get(batch.id(row))
        if other is not None:
            _refuse_repeated(
                parts,
                (min(other, row), max(other, row)),
                f"id '{batch.id(row)}' (an event without id is called source:seq)",
                "give each event an id of its own",
            )


def _repeated_pair(source: Array, seq: Array) -> tuple[int, int] | None:
    """The first row, in the order given, whose (source, seq) an earlier row has; and that row."""
    if bool((seq[1:] > seq[:-1]).all()):  # the common case, and much cheaper
        return None
    order = np.lexsort((seq, source))
    a, b = order[:-1], order[1:]
    equal = np.flatnonzero((source[a] == source[b]) & (seq[a] == seq[b]))
    if not len(equal):
        return None
    at = equal[np.argmin(b[equal])]
    return int(a[at]), int(b[at])


def _refuse_repeated(
    parts: Sequence[Part], pair: tuple[int, int], what: str, hint: str
) -> NoReturn:
    places = [_place(parts, row) for row in pair]
    raise UsageError(
        f"{what} was already used at {places[0]}; it names one event only",
        hint=hint,
        place=places[1],
    )


def _place(parts: Sequence[Part], row: int) -> str:
    for part in parts:
        if row < len(part.batch):
            return part.origin.place(row)
        row -= len(part.batch)
    raise AssertionError("a row of no part")
