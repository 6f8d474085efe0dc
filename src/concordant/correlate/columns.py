"""A batch of events as columns: the form in which events enter the kernel.

Every event is one row. Attributes of different topics share a column when name and kind agree, so
a batch is wide only as far as the data are. Strings are codes into a dictionary, times and integers
are int64, nulls are masks. A batch knows nothing of files, Arrow or Spark (see `files.table`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from concordant.model.event import Event, OrderKey
from concordant.model.kind import Kind, Value
from concordant.model.topic import Schemas, Topic

Array = npt.NDArray[Any]

DTYPES: dict[Kind, npt.DTypeLike] = {
    Kind.BOOL: np.bool_,
    Kind.INT: np.int64,
    Kind.FLOAT: np.float64,
    Kind.STRING: np.int32,
    Kind.TIME: np.int64,
    Kind.NULL: np.bool_,
}


@dataclass(frozen=True, slots=True)
class Column:
    """Values of one kind, a row each. `valid` is None where no row is null."""

    kind: Kind
    values: Array
    valid: npt.NDArray[np.bool_] | None = None
    dictionary: tuple[str, ...] = ()
    """For strings: `values` are positions in it, and -1 for null."""

    def take(self, rows: Array | slice) -> Column:
        valid = None if self.valid is None else self.valid[rows]
        return replace(self, values=self.values[rows], valid=valid)

    def value(self, row: int) -> Value:
        if self.kind is Kind.NULL or (self.valid is not None and not self.valid[row]):
            return None
        if self.kind is Kind.STRING:
            return self.dictionary[int(self.values[row])]
        return cast(Value, self.values[row].item())

    @staticmethod
    def of(kind: Kind, values: Sequence[Value]) -> Column:
        """A column of Python values."""
        valid = np.fromiter((v is not None for v in values), np.bool_, len(values))
        mask = None if bool(valid.all()) else valid
        if kind is Kind.STRING:
            codes: dict[Value, int] = {}
            found = [-1 if v is None else codes.setdefault(v, len(codes)) for v in values]
            dictionary = tuple(str(text) for text in codes)
            return Column(kind, np.array(found, np.int32), mask, dictionary)
        plain = [0 if v is None else v for v in values]
        if kind is Kind.NULL:
            return Column(kind, np.zeros(len(values), np.bool_), valid)
        return Column(kind, np.array(plain, DTYPES[kind]), mask)


@dataclass(frozen=True, slots=True)
class Batch:
    """Events as columns. Row order is the order in which they are matched."""

    topics: Schemas
    """The topics of the rows with their schemas; the n-th name has topic code n."""
    topic: npt.NDArray[np.int32]
    source: Column
    seq: npt.NDArray[np.int64]
    time: npt.NDArray[np.int64]
    attributes: Mapping[tuple[str, Kind], Column]
    ids: Column | None = None
    """Given ids; None (or null in a row) is `source:seq`."""

    def __len__(self) -> int:
        return len(self.topic)

    def take(self, rows: Array | slice) -> Batch:
        """The given rows in the given order."""
        return replace(
            self,
            topic=self.topic[rows],
            source=self.source.take(rows),
            seq=self.seq[rows],
            time=self.time[rows],
            attributes={key: column.take(rows) for key, column in self.attributes.items()},
            ids=None if self.ids is None else self.ids.take(rows),
        )

    def slice(self, start: int, stop: int) -> Batch:
        """Rows start to stop, without copying them."""
        return self.take(np.s_[start:stop])

    def order(self) -> npt.NDArray[np.intp]:
        """Rows sorted by (time, source, seq), the total order of a table."""
        return np.lexsort((self.seq, self.source_rank(), self.time))

    def source_rank(self) -> Array:
        """Each row's source as a number that sorts as the sources' names do."""
        names = self.source.dictionary
        rank = np.empty(len(names), np.int32)
        rank[sorted(range(len(names)), key=names.__getitem__)] = np.arange(len(names))
        return rank[self.source.values]

    def id(self, row: int) -> str:
        given = None if self.ids is None else self.ids.value(row)
        return str(given) if given else f"{self.source.value(row)}:{self.seq[row]}"

    def event_key(self, row: int) -> OrderKey:
        """The order key of one row."""
        return OrderKey(int(self.time[row]), str(self.source.value(row)), int(self.seq[row]))

    def event(self, row: int) -> Event:
        """One row as an event, with the non-null attributes of its topic."""
        topic = self.topic_names[self.topic[row]]
        values: dict[str, Value] = {}
        for name, kind in self.topics[topic].attributes.items():
            value = self.attributes[name, kind].value(row)
            if value is not None:
                values[name] = value
        return Event(
            topic,
            str(self.source.value(row)),
            int(self.seq[row]),
            int(self.time[row]),
            values,
            self.id(row),
        )

    def events(self) -> Iterator[Event]:
        """All rows as events."""
        return (self.event(row) for row in range(len(self)))

    @property
    def topic_names(self) -> tuple[str, ...]:
        return tuple(self.topics)

    @staticmethod
    def concat(batches: Sequence[Batch]) -> Batch:
        """All rows of batches that agree on their topics' schemas, one batch after the other."""
        if len(batches) == 1:
            return batches[0]
        topics: dict[str, Topic] = {}
        for batch in batches:
            topics.update(batch.topics)
        codes = {name: code for code, name in enumerate(topics)}
        keys = dict.fromkeys(key for batch in batches for key in batch.attributes)
        return Batch(
            topics,
            np.concatenate(
                [
                    np.array([codes[name] for name in batch.topics] or [0], np.int32)[batch.topic]
                    for batch in batches
                ]
            ),
            _stacked(Kind.STRING, [batch.source for batch in batches], batches),
            np.concatenate([batch.seq for batch in batches]),
            np.concatenate([batch.time for batch in batches]),
            {
                key: _stacked(key[1], [batch.attributes.get(key) for batch in batches], batches)
                for key in keys
            },
            _stacked_ids(batches),
        )

    @staticmethod
    def of(events: Iterable[Event], topics: Iterable[Topic]) -> Batch:
        """A batch of event objects whose topics are known."""
        rows = list(events)
        schemas = {topic.name: topic for topic in topics}
        codes = {name: code for code, name in enumerate(schemas)}
        wanted: dict[tuple[str, Kind], set[str]] = {}
        for topic in schemas.values():
            for name, kind in topic.attributes.items():
                wanted.setdefault((name, kind), set()).add(topic.name)
        return Batch(
            schemas,
            np.array([codes[event.topic] for event in rows], np.int32),
            Column.of(Kind.STRING, [event.source for event in rows]),
            np.array([event.seq for event in rows], np.int64),
            np.array([event.time for event in rows], np.int64),
            {
                (name, kind): Column.of(
                    kind,
                    [e.attributes.get(name) if e.topic in holders else None for e in rows],
                )
                for (name, kind), holders in wanted.items()
            },
            _given_ids(rows),
        )


def _given_ids(events: Sequence[Event]) -> Column | None:
    ids = [None if event.id == f"{event.source}:{event.seq}" else event.id for event in events]
    return Column.of(Kind.STRING, ids) if any(ids) else None


def _stacked(kind: Kind, columns: Sequence[Column | None], batches: Sequence[Batch]) -> Column:
    """One column under the other; a batch without the column has nulls."""
    codes: dict[str, int] = {}
    values: list[Array] = []
    masks: list[Array] = []
    for column, batch in zip(columns, batches, strict=True):
        if column is None:
            values.append(np.full(len(batch), -1 if kind is Kind.STRING else 0, DTYPES[kind]))
            masks.append(np.zeros(len(batch), np.bool_))
            continue
        if kind is Kind.STRING:
            values.append(_recoded(column, codes))
        else:
            values.append(column.values)
        every = np.ones(len(batch), np.bool_)
        masks.append(every if column.valid is None else column.valid)
    mask = np.concatenate(masks)
    return Column(kind, np.concatenate(values), None if bool(mask.all()) else mask, tuple(codes))


def _stacked_ids(batches: Sequence[Batch]) -> Column | None:
    """Given ids, one batch under the other; hardly two are equal, so no two are made one."""
    if all(batch.ids is None for batch in batches):
        return None
    texts: list[str] = []
    values: list[Array] = []
    for batch in batches:
        if batch.ids is None:
            values.append(np.full(len(batch), -1, np.int32))
            continue
        places, mapping = _used(batch.ids)
        mapping[places] = np.arange(len(texts), len(texts) + len(places))
        texts += map(batch.ids.dictionary.__getitem__, places.tolist())
        values.append(mapping[batch.ids.values])
    codes = np.concatenate(values)
    valid = codes >= 0
    return Column(Kind.STRING, codes, None if bool(valid.all()) else valid, tuple(texts))


def _recoded(column: Column, codes: dict[str, int]) -> Array:
    """The codes of a column of strings in another dictionary."""
    places, mapping = _used(column)
    texts = map(column.dictionary.__getitem__, places.tolist())
    mapping[places] = [codes.setdefault(text, len(codes)) for text in texts]
    return mapping[column.values]


def _used(column: Column) -> tuple[Array, Array]:
    """Which places of a dictionary are in use, and room for new codes, the last one for null."""
    used = np.zeros(len(column.dictionary) + 1, np.bool_)
    used[column.values] = True  # null is -1, the last place
    return np.flatnonzero(used[:-1]), np.full(len(used), -1, np.int32)
