"""A kernel's state as plain values: arrays as bytes, so that saving takes time linear in them."""

from __future__ import annotations

import msgspec
import numpy as np

from concordant.correlate.columns import DTYPES, Batch, Column
from concordant.model.kind import Kind
from concordant.model.topic import Topic


class SavedColumn(msgspec.Struct, array_like=True):
    """A column of a batch."""

    kind: Kind
    values: bytes
    valid: bytes | None
    dictionary: tuple[str, ...]

    @staticmethod
    def of(column: Column) -> SavedColumn:
        valid = None if column.valid is None else np.packbits(column.valid).tobytes()
        used = column.dictionary
        values = column.values
        if column.kind is Kind.STRING:  # only the strings that rows still hold
            codes, inverse = np.unique(values, return_inverse=True)
            used = tuple(column.dictionary[code] for code in codes if code >= 0)
            values = (inverse - int(bool(len(codes)) and codes[0] < 0)).astype(np.int32)
        return SavedColumn(column.kind, values.tobytes(), valid, used)

    def column(self) -> Column:
        values = np.frombuffer(self.values, DTYPES[self.kind])
        valid = None
        if self.valid is not None:
            bits = np.frombuffer(self.valid, np.uint8)
            valid = np.unpackbits(bits, count=len(values)).astype(np.bool_)
        return Column(self.kind, values, valid, self.dictionary)


class SavedBatch(msgspec.Struct, array_like=True):
    """The events that queues hold."""

    topics: dict[str, dict[str, Kind]]
    topic: bytes
    source: SavedColumn
    seq: bytes
    time: bytes
    attributes: list[tuple[str, SavedColumn]]
    ids: SavedColumn | None

    @staticmethod
    def of(batch: Batch) -> SavedBatch:
        return SavedBatch(
            {name: dict(topic.attributes) for name, topic in batch.topics.items()},
            batch.topic.tobytes(),
            SavedColumn.of(batch.source),
            batch.seq.tobytes(),
            batch.time.tobytes(),
            [(name, SavedColumn.of(column)) for (name, _), column in batch.attributes.items()],
            None if batch.ids is None else SavedColumn.of(batch.ids),
        )

    def batch(self) -> Batch:
        return Batch(
            {name: Topic(name, attributes) for name, attributes in self.topics.items()},
            np.frombuffer(self.topic, np.int32),
            self.source.column(),
            np.frombuffer(self.seq, np.int64),
            np.frombuffer(self.time, np.int64),
            {(name, one.kind): one.column() for name, one in self.attributes},
            None if self.ids is None else self.ids.column(),
        )


class SavedStage(msgspec.Struct, array_like=True):
    """One stage: arena, encoded cells of the rows, counters, and the rows."""

    arena: bytes
    cells: bytes
    topic_counts: bytes
    rows: list[SavedBatch]


class SavedKernel(msgspec.Struct, array_like=True):
    """All stages, with the dictionary of strings that their codes mean."""

    position: int
    strings: list[str]
    stages: list[SavedStage]
