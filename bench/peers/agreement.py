"""Do both sides find the same matches? And the smallest file on which they do not.

For this pattern they must agree: all matches have three rows, so that the first to be completed
is the first to begin, and "skip past last row" and `prefix` then remove the same rows. The one
difference is the order of the rows themselves, below a millisecond.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers.flink import MODES, Flink
from bench.peers.kernel_side import Concordant
from bench.peers.quotes import Quote, Triple, spaced, write_quotes

BY_HAND: dict[str, list[tuple[str, float]]] = {
    "four rising: one match, the fourth begins anew": [("S", v) for v in (1, 2, 3, 4)],
    "six rising: two matches": [("S", v) for v in (1, 2, 3, 4, 5, 6)],
    "a fall in between: neighbours only": [("S", v) for v in (1, 2, 1, 3, 2, 3, 4)],
    "equal is not rising": [("S", v) for v in (1, 2, 2, 3, 3, 4, 5)],
    "another symbol in between is no neighbour": [("S", 1), ("T", 9), ("S", 2), ("T", 8), ("S", 3)],
}

# In the order of time (microseconds) the values rise; in the order of the file they do not, and
# Flink's row times, in milliseconds, are equal.
WITHIN_A_MILLISECOND: list[Quote] = [(1, 1, "S", 1.0), (2, 3, "S", 3.0), (3, 2, "S", 2.0)]

_RANDOM_ROWS = 3_000


@dataclass(frozen=True)
class Compared:
    """One file, both answers."""

    name: str
    values: str
    flink: list[Triple]
    concordant: list[Triple]

    @property
    def agree(self) -> bool:
        return self.flink == self.concordant

    def text(self) -> str:
        sides = f"Flink {shown(self.flink)}, Concordant {shown(self.concordant)}"
        return f"{self.name} [{self.values}]: {sides}"


def shown(triples: Sequence[Triple], most: int = 4) -> str:
    """Matches by the seq of their rows."""
    if not triples:
        return "none"
    if len(triples) > most:
        return f"{len(triples):,} matches"
    return " ".join(f"({a}, {b}, {c})" for _, a, b, c in triples)


def by_hand(flink: Flink, ours: Concordant) -> list[Compared]:
    """The small files, in both modes of Flink; a random one with few values last."""
    draw = random.Random(1)
    rows = [(draw.choice("ABCDEFG"), float(draw.randrange(6))) for _ in range(_RANDOM_ROWS)]
    files = {name: spaced(values) for name, values in BY_HAND.items()}
    files["seven symbols, six values, at random"] = spaced(rows)
    return [
        _compared(name, quotes, mode, flink, ours)
        for name, quotes in files.items()
        for mode in MODES
    ]


def where_they_differ(flink: Flink, ours: Concordant) -> list[Compared]:
    """The smallest file on which they differ, in both modes of Flink."""
    name = "out of order within a millisecond"
    return [_compared(name, WITHIN_A_MILLISECOND, mode, flink, ours) for mode in MODES]


def _compared(
    name: str, quotes: list[Quote], mode: str, flink: Flink, ours: Concordant
) -> Compared:
    symbols = {symbol for _, _, symbol, _ in quotes}
    values = " ".join(
        f"{value:g}" if len(symbols) == 1 else f"{symbol}{value:g}"
        for _, _, symbol, value in quotes
    )
    if len(quotes) > 10:
        values = f"{len(quotes):,} rows"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "quotes.csv")
        write_quotes(path, quotes)
        theirs = flink.triples(path, mode=mode, parallelism=1)
        return Compared(f"{name}, {mode}", values, theirs, ours.triples(path))
