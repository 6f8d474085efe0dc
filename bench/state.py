"""The size of the state, and the time to save and load it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any

import numpy as np

from bench import events
from bench.kernels import chunks, plan_of
from bench.measure import interleaved, timed
from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.correlate.columns import Array, Batch
from concordant.correlate.kernel import Kernel
from concordant.correlate.plan import Plan
from concordant.model.kind import Kind

TEXT = "A.x < B.x consume matched partition by key"
KEYS = 1_000
ATTRIBUTES = 2
"""x and key: 8 bytes each are the event's own, everything else is what keeping it costs."""

STEP_ROWS = 10_000


def _queued(count: int) -> Batch:
    """Events of A alone: all of them wait."""
    rng = np.random.default_rng(1)
    columns = {
        ("x", Kind.INT): events.ints(rng.integers(0, 1_000_000, count)),
        events.KEY: events.ints(rng.integers(0, KEYS, count)),
    }
    return events.make("AB", np.zeros(count), columns)


def _probes() -> Batch:
    columns = {
        ("x", Kind.INT): events.ints(np.full(KEYS, 2_000_000)),
        events.KEY: events.ints(np.arange(KEYS)),
    }
    return events.make("AB", np.ones(KEYS), columns)


def arrays_of(root: Any) -> dict[str, Array]:
    """Every array that a state reaches through attributes, once, by the path to it.

    A view counts as the array that it keeps alive.
    """
    found: dict[int, tuple[str, Array]] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, Any]] = [("", root)]
    while waiting:
        path, item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, np.ndarray):
            owner = item
            while isinstance(owner.base, np.ndarray):
                owner = owner.base
            found.setdefault(id(owner), (path, owner))
        elif isinstance(item, Mapping):
            waiting += [(f"{path}.{key}", value) for key, value in item.items()]
        elif isinstance(item, Sequence) and not isinstance(item, str | bytes):
            waiting += [(path, value) for value in item]
        elif is_dataclass(item) and not isinstance(item, type):
            waiting += [(f"{path}.{f.name}", getattr(item, f.name)) for f in fields(item)]
        elif hasattr(item, "__dict__") and type(item).__module__.startswith("concordant."):
            waiting += [(f"{path}.{name}", value) for name, value in vars(item).items()]
    sizes: dict[str, Array] = {}
    for path, array in found.values():
        name = path
        while name in sizes:
            name += "'"
        sizes[name] = array
    return sizes


def _memory(plan: Plan, count: int) -> tuple[Kernel, dict[str, int]]:
    """A kernel with queued events, and bytes by the stage's attribute."""
    kernel = Kernel(plan)
    empty = sum(array.nbytes for array in arrays_of(kernel._stages).values())
    for part in chunks(_queued(count), STEP_ROWS):
        # Copied, as a driver's batches are: a view would count (and keep) the whole table.
        kernel.step(part.take(np.arange(len(part))))
    sizes: dict[str, int] = {}
    for path, array in arrays_of(kernel._stages).items():
        place = path.split(".")[1].strip("_'")
        sizes[place] = sizes.get(place, 0) + array.nbytes
    sizes["empty"] = empty
    return kernel, sizes


def run(size: Size) -> Section:
    """Bytes per queued event, and save and load against the number of queued events."""
    plan = plan_of(TEXT, _queued(1).topics)
    Kernel(plan).step(_probes())
    rows: list[Row] = []
    for count in [n for n in (10_000, 100_000, 1_000_000) if n <= size.longest]:
        kernel, sizes = _memory(plan, count)
        total = sum(sizes.values()) - 2 * sizes["empty"]
        saved = kernel.save()
        _check(plan, kernel, saved)
        target = Kernel(plan)
        taken = interleaved(
            size.rounds,
            {
                "save": partial(timed, kernel.save),
                "load": partial(timed, partial(target.load, saved)),
            },
        )
        rows.append(
            {
                "queued": count,
                "bytes": total / count - 8 * ATTRIBUTES,
                "arena": sizes.get("arena", 0) / count,
                "cells": sizes.get("cells", 0) / count,
                "rows": sizes.get("rows", 0) / count,
                "saved": len(saved),
                "saved_each": len(saved) / count,
                "save": taken["save"].median,
                "save_spread": taken["save"].spread,
                "load": taken["load"].median,
                "load_spread": taken["load"].spread,
                "ns": 1e9 * (taken["save"].median + taken["load"].median) / count,
            }
        )
    first, last = rows[0], rows[-1]
    return Section(
        "state",
        "State",
        f"`{TEXT}` with events of A only, so that all of them wait; given by {STEP_ROWS:,} rows "
        f"per step, {KEYS:,} keys. Bytes per queued event are those of all arrays that the state "
        "holds (with the room they keep to grow), less 8 for each of the event's two attributes. "
        "The next three columns say where they are: queues and partitions, encoded columns, and "
        "the rows as they came (attributes included). A loaded state goes on with the same "
        "relations, which is checked first.",
        (
            Column("queued", "queued events", "count"),
            Column("bytes", "bytes/event beyond attributes", "bytes"),
            Column("arena", "queues", "bytes"),
            Column("cells", "encoded", "bytes"),
            Column("rows", "rows", "bytes"),
            Column("saved", "saved", "megabytes"),
            Column("save", "save", "seconds"),
            Column("save_spread", "spread", "percent"),
            Column("load", "load", "seconds"),
            Column("load_spread", "spread", "percent"),
            Column("ns", "save + load, ns/event", "ns"),
        ),
        rows,
        [
            Goal(
                f"memory per queued event beyond its attributes, {last['queued']:,} queued",
                "≤ 64 bytes",
                f"{last['bytes']:.0f} bytes",
            ),
            Goal(
                f"save and load, time per event from {first['queued']:,} to {last['queued']:,}",
                "linear (1x)",
                f"{last['ns'] / first['ns']:.2f}x",
            ),
        ],
        Plot("queued", "ns", "queued events", "save + load, ns per event"),
    )


def _check(plan: Plan, kernel: Kernel, saved: bytes) -> None:
    """A loaded state goes on as the one that was saved."""
    loaded = Kernel(plan)
    loaded.load(saved)
    found = [one.event_ids for one in loaded.step(_probes())]
    expected = [one.event_ids for one in kernel.step(_probes())]
    assert found == expected, "a loaded state goes on differently"
    assert len(found) == KEYS, f"{len(found)} relations, not one per key"
