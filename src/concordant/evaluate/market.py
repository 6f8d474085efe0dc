"""A market day from a seed: quotes, trades, news, reports and currency rates as one batch.

It knows what such a day looks like (a few symbols get most of the traffic, prices walk, exchanges
number their own messages) and nothing of subscriptions: whatever matches, matches by chance. All
of it is arithmetic on whole columns, so a day of a million events is made in less time than it
takes to read one from a file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from concordant.correlate.columns import Batch, Column
from concordant.errors import UsageError
from concordant.model.kind import Kind, parse_instant
from concordant.model.topic import Topic, schemas

TOPICS = schemas(
    [
        Topic("CurrencyRate", {"pair": Kind.STRING, "rate": Kind.FLOAT}),
        Topic(
            "EarningsReport",
            {"symbol": Kind.STRING, "surprise": Kind.FLOAT, "quarter": Kind.INT},
        ),
        Topic("News", {"symbol": Kind.STRING, "sentiment": Kind.FLOAT, "headline": Kind.STRING}),
        Topic("StockQuote", {"symbol": Kind.STRING, "value": Kind.FLOAT, "volume": Kind.INT}),
        Topic(
            "Trade",
            {
                "symbol": Kind.STRING,
                "price": Kind.FLOAT,
                "size": Kind.INT,
                "side": Kind.STRING,
            },
        ),
    ]
)
"""The five topics of a market day, in topic order."""

MIX = {
    "CurrencyRate": 0.045,
    "EarningsReport": 0.005,
    "News": 0.05,
    "StockQuote": 0.70,
    "Trade": 0.20,
}
"""The share of each topic, in topic order."""

OPEN_US = parse_instant("2026-03-02T09:30:00Z")
CLOSE_US = parse_instant("2026-03-02T16:00:00Z")

SOURCES = ("XA", "XB", "XC", "filings", "forex", "wire")
"""Three exchanges, then one source each for reports, rates and news; sorted by name."""

POPULARITY_EXPONENT = 0.901
"""The symbol of rank k is named in proportion to k ** -0.901."""

VOLATILITY = 0.05
"""Standard deviation of the logarithm of a walk over the whole day."""

HALF_SPREAD = 0.0002
"""A buyer pays so much more than the quoted value, a seller gets so much less."""

PAIRS = {
    "EURUSD": 1.08,
    "GBPUSD": 1.27,
    "USDJPY": 149.5,
    "USDCHF": 0.88,
    "AUDUSD": 0.65,
    "USDCAD": 1.36,
}
"""Currency pairs with their opening rates."""

HEADLINES = (
    "regulator opens an inquiry",
    "guidance withdrawn",
    "chief financial officer leaves",
    "analysts divided",
    "new product announced",
    "large order won",
    "dividend raised",
    "takeover offer received",
)
"""From the worst news to the best: the sentiment decides which."""

_EXCHANGES = 3
_AGENCY = {"EarningsReport": "filings", "CurrencyRate": "forex", "News": "wire"}

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


def market_day(events: int = 1_000_000, *, seed: int = 1, symbols: int = 500) -> Batch:
    """One trading day, sorted by (time, source, seq); the same arguments give the same day.

    Symbols are called S001, S002, … from the most popular one down.

    >>> day = market_day(1_000, seed=7)
    >>> len(day), day.event(0).topic in TOPICS
    (1000, True)
    """
    if events < 0 or symbols < 1:
        raise UsageError(
            f"a market day of {events} events and {symbols} symbols is impossible",
            hint="ask for at least 0 events and at least 1 symbol",
        )
    rng = np.random.default_rng(seed)
    topic, source, time = _skeleton(rng, events)
    rows = {name: topic == code for code, name in enumerate(TOPICS)}
    symbol = _popular(rng, events, symbols)
    attributes = (
        _symbol_column(symbol, symbols, held=~rows["CurrencyRate"])
        | _market(rng, symbol, symbols, quoted=rows["StockQuote"], traded=rows["Trade"])
        | _reports(rng, rows["EarningsReport"])
        | _news(rng, rows["News"])
        | _rates(rng, rows["CurrencyRate"])
    )
    return Batch(
        TOPICS,
        topic,
        Column(Kind.STRING, source, None, SOURCES),
        _ordinals(source, len(SOURCES)),
        time,
        attributes,
    )


def _skeleton(rng: np.random.Generator, events: int) -> tuple[Codes, Codes, Ints]:
    """Topic, source and time of each row, sorted by (time, source)."""
    topic = np.searchsorted(_cumulative(list(MIX.values())), rng.random(events), side="right")
    source = rng.integers(0, _EXCHANGES, events)
    for code, name in enumerate(TOPICS):
        if name in _AGENCY:
            source[topic == code] = SOURCES.index(_AGENCY[name])
    time = rng.integers(OPEN_US, CLOSE_US, events)
    order = np.lexsort((source, time))
    return topic[order].astype(np.int32), source[order].astype(np.int32), time[order]


def _symbol_column(symbol: Codes, symbols: int, *, held: Mask) -> dict[tuple[str, Kind], Column]:
    names = tuple(f"S{rank:03d}" for rank in range(1, symbols + 1))
    return {("symbol", Kind.STRING): _column(Kind.STRING, held, symbol[held], names)}


def _market(
    rng: np.random.Generator, symbol: Codes, symbols: int, *, quoted: Mask, traded: Mask
) -> dict[tuple[str, Kind], Column]:
    """Quotes and trades: a quote moves its symbol's walk, a trade is made at the last quote."""
    either = quoted | traded
    moves = rng.standard_normal(int(either.sum())) * quoted[either]
    opening = np.exp(rng.normal(4.0, 0.8, symbols))
    value = np.zeros(len(symbol))
    value[either] = _walk(opening, symbol[either], moves)
    trades = int(traded.sum())
    side = rng.integers(0, 2, trades).astype(np.int32)
    paid = value[traded] * np.where(side == 0, 1 + HALF_SPREAD, 1 - HALF_SPREAD)
    return {
        ("value", Kind.FLOAT): _column(Kind.FLOAT, quoted, np.round(value[quoted], 2)),
        ("volume", Kind.INT): _column(Kind.INT, quoted, _lots(rng, int(quoted.sum()), 8.0)),
        ("price", Kind.FLOAT): _column(Kind.FLOAT, traded, np.round(paid, 2)),
        ("size", Kind.INT): _column(Kind.INT, traded, _lots(rng, trades, 3.0)),
        ("side", Kind.STRING): _column(Kind.STRING, traded, side, ("buy", "sell")),
    }


def _reports(rng: np.random.Generator, held: Mask) -> dict[tuple[str, Kind], Column]:
    count = int(held.sum())
    surprise = np.round(rng.normal(0.0, 0.05, count), 4)
    return {
        ("surprise", Kind.FLOAT): _column(Kind.FLOAT, held, surprise),
        ("quarter", Kind.INT): _column(Kind.INT, held, rng.integers(1, 5, count)),
    }


def _news(rng: np.random.Generator, held: Mask) -> dict[tuple[str, Kind], Column]:
    sentiment = rng.uniform(-1.0, 1.0, int(held.sum()))
    headline = np.floor((sentiment + 1.0) / 2.0 * len(HEADLINES)).astype(np.int32)
    return {
        ("sentiment", Kind.FLOAT): _column(Kind.FLOAT, held, np.round(sentiment, 3)),
        ("headline", Kind.STRING): _column(Kind.STRING, held, headline, HEADLINES),
    }


def _rates(rng: np.random.Generator, held: Mask) -> dict[tuple[str, Kind], Column]:
    count = int(held.sum())
    pair = rng.integers(0, len(PAIRS), count).astype(np.int32)
    rate = _walk(np.array(list(PAIRS.values())), pair, rng.standard_normal(count))
    return {
        ("pair", Kind.STRING): _column(Kind.STRING, held, pair, tuple(PAIRS)),
        ("rate", Kind.FLOAT): _column(Kind.FLOAT, held, np.round(rate, 5)),
    }


# --- arithmetic on columns ------------------------------------------------------------------------


def _cumulative(weights: Sequence[float] | Floats) -> Floats:
    """Cumulative shares whose last one is exactly 1, so that no draw falls behind it."""
    total = np.cumsum(np.asarray(weights, np.float64))
    shares: Floats = total / total[-1]
    return shares


def _popular(rng: np.random.Generator, count: int, symbols: int) -> Codes:
    """Symbols drawn by the power law of their rank."""
    ranks = np.arange(1, symbols + 1, dtype=np.float64)
    shares = _cumulative(ranks**-POPULARITY_EXPONENT)
    return np.searchsorted(shares, rng.random(count), side="right").astype(np.int32)


def _walk(opening: Floats, group: Codes, moves: Floats) -> Floats:
    """Each group's value from its opening on, moved by its rows up to and with the row itself.

    Moves are scaled by the number of the group's rows: a busy symbol takes more and smaller
    steps, and ends the day as far from its opening as a quiet one.
    """
    counts = np.bincount(group, minlength=len(opening))
    order = np.argsort(group, kind="stable")
    total = np.cumsum(moves[order])
    before = np.concatenate(([0.0], total))[np.cumsum(counts) - counts]
    drift = np.empty_like(moves)
    drift[order] = total - before[group[order]]
    return opening[group] * np.exp(VOLATILITY / np.sqrt(np.maximum(counts, 1))[group] * drift)


def _ordinals(group: Codes, groups: int) -> Ints:
    """Each row's number within its group, from 1, in row order."""
    counts = np.bincount(group, minlength=groups)
    order = np.argsort(group, kind="stable")
    ordinals = np.empty(len(group), np.int64)
    ordinals[order] = np.arange(1, len(group) + 1) - (np.cumsum(counts) - counts)[group[order]]
    return ordinals


def _lots(rng: np.random.Generator, count: int, mean: float) -> Ints:
    """Numbers of shares in round lots of a hundred."""
    return 100 * rng.geometric(1.0 / mean, count)


def _column(
    kind: Kind,
    held: Mask,
    values: npt.NDArray[np.int32 | np.int64 | np.float64],
    dictionary: tuple[str, ...] = (),
) -> Column:
    """A column with the given values in the rows that hold it and nulls in all others."""
    filled = np.full(len(held), -1 if kind is Kind.STRING else 0, values.dtype)
    filled[held] = values
    return Column(kind, filled, None if bool(held.all()) else held, dictionary)
