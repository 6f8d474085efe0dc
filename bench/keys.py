"""The cost of an event against the number of partition keys, integers and strings."""

from __future__ import annotations

from bench import events
from bench.result import Column, Goal, Plot, Row, Section, Size
from bench.workloads import Case, measure
from concordant.model.kind import Kind

TEXT = "A then B partition by key"


def run(size: Size) -> Section:
    """`A then B partition by key`, every key equally often."""
    rows: list[Row] = []
    count = 2 * size.rows
    for strings in (False, True):
        kind = Kind.STRING if strings else Kind.INT
        for keys in size.powers(0, 2, 4, 5, 6):
            batch = events.keyed(count, keys, strings=strings)
            case = Case("keys", TEXT, batch, (), ("key", kind), 3_000, 1_000)
            taken, relations = measure(case, size.rounds)
            kernel, dictionary, baseline = (taken[n] for n in ("kernel", "dictionary", "baseline"))
            rows.append(
                {
                    "kind": str(kind.value),
                    "keys": keys,
                    "rate": count / kernel.median,
                    "ns": 1e9 * kernel.median / count,
                    "spread": kernel.spread,
                    "dictionary_ns": 1e9 * dictionary.median / count,
                    "dictionary_ratio": kernel.over(dictionary),
                    "baseline_ns": 1e9 * baseline.median / count,
                    "ratio": kernel.over(baseline),
                    "relations": relations,
                }
            )
    most = [row for row in rows if row["keys"] == rows[-1]["keys"]]
    return Section(
        "keys",
        "Partition keys",
        f"`{TEXT}` over {count:,} events in one step, every key equally often in a shuffled order, "
        "so that with many keys nearly each event goes to memory that no cache holds: for the "
        "baselines too, which are those of the workloads. Strings enter as a dictionary of all "
        "keys, read in the measured time.",
        (
            Column("kind", "key"),
            Column("keys", "distinct keys", "count"),
            Column("rate", "events", "rate"),
            Column("ns", "ns/event", "ns"),
            Column("spread", "spread", "percent"),
            Column("dictionary_ns", "dictionary ns/event", "ns"),
            Column("dictionary_ratio", "ratio", "ratio"),
            Column("baseline_ns", "lean ns/event", "ns"),
            Column("ratio", "ratio", "ratio"),
            Column("relations", "relations", "count"),
        ),
        rows,
        [
            Goal(
                f"{row['keys']:,} keys ({row['kind']}) against a loop with Numba's dictionary",
                "≤ 3x",
                f"{row['dictionary_ratio']:.1f}x, {row['ratio']:.1f}x of the lean one",
            )
            for row in most
        ],
        Plot("keys", "ns", "distinct keys", "ns per event", "kind"),
    )
