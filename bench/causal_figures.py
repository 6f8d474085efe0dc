"""Kim and Ahn, figures 7 to 10: how gossip reaches everybody, computed, played, and by brokers.

The chain is the exact analysis of lpbcast, with which they compare, the mean field its usual
simplification. `played` draws as brokers do; `brokers` are the machines themselves, 125 of them.
With pulls, one more event per step follows the first, and who lacks a predecessor asks the sender.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bench.result import Column, Goal, Plot, Row, Section, Size
from concordant.causal.options import Profile
from concordant.evaluate import epidemic
from concordant.evaluate.broker_spread import broker_spread
from concordant.evaluate.epidemic import Shape

BROKERS = 125
MANY = 500
STEPS = 11


def spread(size: Size) -> Section:
    """Figure 7: how many steps until everybody has an event."""
    counts = (125, 250, 500, 1_000) if size.name == "full" else (125, 250)
    runs = 120 if size.name == "full" else 30
    rows: list[Row] = []
    for count in counts:
        shape = epidemic.Shape(count)
        chain, field = epidemic.chain(shape, 30), epidemic.mean_field(shape, 12)
        played = epidemic.spread(shape, runs=runs)
        pulled = epidemic.spread(shape, runs=runs, successors=True, pull=True)
        off = max(abs(a / b - 1) for a, b in zip(played.reached, field, strict=False))
        for kind, one in (("push", played), ("push and pull", pulled)):
            rows.append(
                {
                    "count": count,
                    "series": kind,
                    "steps": one.steps_to_all,
                    "chain": chain.steps_to_all,
                    "off": off if kind == "push" else None,
                    "all_by": _first(one.all_by, 0.99),
                    "chain_by": _first(chain.all_by, 0.99),
                    "pulls": one.pulls,
                }
            )
    return Section(
        "causal-spread",
        "Steps until all have an event (Kim and Ahn, figure 7)",
        "Fan-out 3, 5 % of messages lost, 1 % of processes crash. The chain is the exact analysis, "
        "the mean field its usual simplification. With pulls, an event is followed by one more per "
        "step, and who lacks a predecessor asks the sender.",
        (
            Column("count", "processes", "count"),
            Column("series", "gossip"),
            Column("steps", "steps to all, played", "ns"),
            Column("chain", "by the chain", "ns"),
            Column("off", "reached, off the mean field", "percent"),
            Column("all_by", "99 % have all by step", "count"),
            Column("chain_by", "by the chain", "count"),
            Column("pulls", "pulls per event", "ns"),
        ),
        rows,
        [
            Goal(
                "played runs off the mean field, at most",
                "2 %",
                f"{100 * max(row['off'] for row in rows if row['off'] is not None):.1f} %",
            )
        ],
        Plot("count", "steps", "processes", "steps until all have it", "series", linear=True),
        drawn=[
            *({**row, "series": "chain", "steps": row["chain"]} for row in rows[::2]),
            *sorted(rows, key=lambda row: row["series"]),
        ],
    )


def _first(shares: Sequence[float], least: float) -> int:
    return next((step for step, share in enumerate(shares) if share >= least), len(shares))


def reach(size: Size) -> Section:
    """Figure 8: how many have an event, step by step."""
    full = size.name == "full"
    shape = Shape(BROKERS)
    field = epidemic.mean_field(shape, STEPS)
    played = epidemic.spread(shape, runs=400 if full else 60).reached
    pushed, pulled = _brokers(shape, "local", runs=40 if full else 4)
    lines: dict[str, Sequence[float]] = {
        "mean field": field,
        "chain": epidemic.chain(shape, STEPS).expected,
        "played": played,
        "brokers": pushed.reached,
        "brokers, with pulls": pulled.reached,
    }
    off = max(abs(a / b - 1) for a, b in zip(played, field, strict=False))
    return _section(
        "causal-reach",
        "How many have an event (Kim and Ahn, figure 8)",
        f"{BROKERS} processes, fan-out 3, 5 % of messages lost, 1 % of processes crash, which is "
        "why fewer than all are reached in the end. Brokers are the machines that run live.",
        lines,
        "ns",
        "processes that have the event",
        [Goal("played runs off the mean field, at most (figure 8)", "2 %", f"{100 * off:.1f} %")],
    )


def certain(size: Size) -> Section:
    """Figure 9: the chance that all have an event, predecessors by topic and origin."""
    return _certain(size, "local", "causal-certain", "figure 9")


def certain_by_rounds(size: Size) -> Section:
    """Figure 10: the same, with one age per broker."""
    return _certain(size, "rounds", "causal-certain-rounds", "figure 10")


def _certain(size: Size, profile: Profile, name: str, figure: str) -> Section:
    full = size.name == "full"
    few, many = Shape(BROKERS), Shape(MANY)
    pushed, pulled = _brokers(few, profile, runs=60 if full else 5)
    runs = 60 if full else 4
    lines: dict[str, Sequence[float]] = {
        f"{BROKERS}: chain": epidemic.chain(few, STEPS).all_by,
        f"{BROKERS}: brokers": pushed.all_by,
        f"{BROKERS}: brokers, with pulls": pulled.all_by,
        f"{MANY}: chain": epidemic.chain(many, STEPS).all_by,
        f"{MANY}: played": epidemic.spread(many, runs=runs).all_by,
        f"{MANY}: played, with pulls": epidemic.spread(
            many, runs=runs, successors=True, pull=True
        ).all_by,
    }
    return _section(
        name,
        f"All have an event (Kim and Ahn, {figure})",
        f"Profile `{profile}`. Shares of runs in which all processes that did not crash have the "
        "event, by step; fan-out 3, 5 % of messages lost, 1 % of processes crash. Causal "
        "information does not make gossip faster, whatever its form: pulls of predecessors do, at "
        f"{pulled.pulls:.0f} pulls per run among {BROKERS} brokers.",
        lines,
        "percent",
        "share of runs in which all have it",
        [],
    )


def _section(
    name: str,
    title: str,
    note: str,
    lines: Mapping[str, Sequence[float]],
    show: str,
    y_label: str,
    goals: list[Goal],
) -> Section:
    """One row per step and one column per line."""
    return Section(
        name,
        title,
        note,
        (Column("step", "step", "count"), *(Column(line, line, show) for line in lines)),
        [{"step": n, **{line: at[n] for line, at in lines.items()}} for n in range(STEPS + 1)],
        goals,
        Plot("step", "value", "step", y_label, "line", linear=True),
        drawn=[
            {"step": n, "line": line, "value": at[n]}
            for line, at in lines.items()
            for n in range(STEPS + 1)
        ],
    )


def _brokers(
    shape: Shape, profile: Profile, *, runs: int
) -> tuple[epidemic.Spread, epidemic.Spread]:
    """Without and with pulls."""
    return (
        broker_spread(shape, profile=profile, runs=runs, steps=STEPS),
        broker_spread(shape, profile=profile, runs=runs, steps=STEPS, successors=True, pull=True),
    )
