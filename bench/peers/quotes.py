"""The file that both sides read: quotes of a generated market day as CSV without a header.

Columns: seq, time in microseconds, symbol, value, volume. Quotes are a millisecond apart, because
Flink's row times have milliseconds and rows of equal time would have no order there.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv

from concordant.evaluate.market import MIX, OPEN_US, TOPICS, market_day
from concordant.model.kind import Kind

COLUMNS = ("seq", "time", "symbol", "value", "volume")
SYMBOLS = 500

Triple = tuple[str, int, int, int]
"""A match: the symbol, and the seq of its three quotes."""

Quote = tuple[int, int, str, float]
"""Of a file written by hand: seq, time in microseconds, symbol, value."""


def write_day(path: Path, *, rows: int, seed: int) -> None:
    """So many quotes of a market day, in their order."""
    day = market_day(int(rows / MIX["StockQuote"] * 1.02) + 1_000, seed=seed, symbols=SYMBOLS)
    quotes = np.flatnonzero(day.topic == list(TOPICS).index("StockQuote"))[:rows]
    if len(quotes) < rows:
        raise ValueError(f"the day has only {len(quotes)} quotes")
    symbol = day.attributes["symbol", Kind.STRING]
    table = pa.table(
        {
            "seq": np.arange(1, rows + 1),
            "time": OPEN_US + 1_000 * np.arange(rows),
            "symbol": pa.array(np.array(symbol.dictionary)[symbol.values[quotes]]),
            "value": day.attributes["value", Kind.FLOAT].values[quotes],
            "volume": day.attributes["volume", Kind.INT].values[quotes],
        }
    )
    pcsv.write_csv(table, path, pcsv.WriteOptions(include_header=False, quoting_style="none"))


def write_quotes(path: Path, quotes: Iterable[Quote]) -> None:
    """A file of quotes written by hand."""
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([*quote, 100] for quote in quotes)


def spaced(values: Iterable[tuple[str, float]]) -> list[Quote]:
    """Quotes a millisecond apart."""
    return [
        (seq, OPEN_US + 1_000 * seq, symbol, value) for seq, (symbol, value) in enumerate(values, 1)
    ]
