"""Seeded events for the benchmarks, as batches; the market day comes from `evaluate.market`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from concordant.correlate.columns import Array, Batch, Column
from concordant.model.kind import Kind
from concordant.model.topic import Topic

KEY = ("key", Kind.INT)
NOISE_TOPICS = 6
ATTRIBUTE_MAX = 1_000
"""FAIDECS: three integer attributes, uniform in [0, 1000] (Wilkin, thesis, 3.5.1)."""

STEP_US = 1_000


def make(topics: Sequence[str], codes: Array, columns: Mapping[tuple[str, Kind], Column]) -> Batch:
    """A batch of one source, an event each millisecond; all topics have all columns."""
    attributes = dict(columns.keys())
    rows = len(codes)
    return Batch(
        {name: Topic(name, attributes) for name in topics},
        codes.astype(np.int32),
        Column(Kind.STRING, np.zeros(rows, np.int32), None, ("s",)),
        np.arange(rows, dtype=np.int64),
        np.arange(rows, dtype=np.int64) * STEP_US,
        dict(columns),
    )


def ints(values: Array) -> Column:
    return Column(Kind.INT, values.astype(np.int64))


def sequence_topics(length: int) -> list[str]:
    return [f"T{i + 1}" for i in range(length)]


def sequence(length: int, rows: int, *, keys: int = 1_000, seed: int = 1) -> Batch:
    """Events of `length` topics asked for among noise topics, all equally often."""
    rng = np.random.default_rng(seed)
    topics = sequence_topics(length) + [f"Noise{i + 1}" for i in range(NOISE_TOPICS)]
    codes = rng.integers(0, len(topics), rows)
    return make(topics, codes, {KEY: ints(rng.integers(0, keys, rows))})


def faidecs(topics: int, rows: int, *, seed: int = 1) -> Batch:
    """Events of topics A, B, … with three integer attributes."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, topics, rows)
    columns = {
        (name, Kind.INT): ints(rng.integers(0, ATTRIBUTE_MAX + 1, rows)) for name in ("a", "b", "c")
    }
    return make("ABCD"[:topics], codes, columns)


def keyed(rows: int, keys: int, *, strings: bool, seed: int = 1) -> Batch:
    """Topics A and B in turn by chance; every key equally often, in a shuffled order."""
    rng = np.random.default_rng(seed)
    values = rng.permutation(np.arange(rows) % keys)
    if strings:
        names = tuple(f"customer-{i:07d}" for i in range(keys))
        columns = {("key", Kind.STRING): Column(Kind.STRING, values.astype(np.int32), None, names)}
    else:
        columns = {KEY: ints(values * 7919)}
    return make("AB", rng.integers(0, 2, rows), columns)
