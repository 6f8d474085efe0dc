"""The words of clauses: policies and order levels, with the thesis's codes for them.

It turns words into the model's values and suggests the nearest word for a slip. It does not know
where the words stand in a text.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from concordant.errors import UsageError
from concordant.model.subscription import Consume, Match

MATCH_CODES = {"FR": "first", "MR": "recent", "FRC": "first contiguous", "MRC": "recent contiguous"}
"""Wilkin's names of matching policies (thesis, chapter 4)."""

CONSUME_CODES = {"PI": "prefix", "I": "matched", "IP": "suffix", "FP": "slide"}
"""Wilkin's names of consumption policies."""

ORDER_LEVELS = ("none", "fifo", "causal", "agreed", "total", "total strict")
"""The order levels that a subscription can ask for."""


class MatchWords(NamedTuple):
    """What `match …` says."""

    match: Match
    contiguous: bool
    staged: bool


def match_words(words: Sequence[str]) -> MatchWords:
    """`first|recent [contiguous] [staged]`, or a code and perhaps `staged`."""
    policies = [match.value for match in Match]
    given = words[0] if words else ""
    first, *rest = [*(MATCH_CODES[given].split() if given in MATCH_CODES else [given]), *words[1:]]
    if first not in policies:
        raise unknown("a matching policy", first, policies, also=MATCH_CODES)
    for i, word in enumerate(rest):
        if word not in ("contiguous", "staged"):
            raise unknown("part of a matching policy", word, ["contiguous", "staged"])
        if word in rest[:i]:
            raise UsageError(f"'match' says '{word}' twice", hint="say it once")
    return MatchWords(Match(first), "contiguous" in rest, "staged" in rest)


def consume_word(word: str) -> Consume:
    """`prefix|matched|suffix|slide` or a code."""
    policies = [consume.value for consume in Consume]
    found = CONSUME_CODES.get(word, word)
    if found not in policies:
        raise unknown("a consumption policy", word, policies, also=CONSUME_CODES)
    return Consume(found)


def order_level(words: Sequence[str]) -> str:
    """One of the order levels."""
    level = " ".join(words)
    if level not in ORDER_LEVELS:
        raise unknown("an order level", level, ORDER_LEVELS)
    return level


def unknown(what: str, word: str, known: Iterable[str], *, also: Iterable[str] = ()) -> UsageError:
    """The error for a word that is none of the known ones, with the nearest as a hint."""
    names = list(known)
    codes = f" (or {', '.join(also)})" if also else ""
    return UsageError(
        f"'{word}' is not {what}: they are {', '.join(names)}{codes}",
        hint=suggestion(word, [*names, *also]) or f"write one of {', '.join(names)}",
    )


def suggestion(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """`did you mean 'x'?`, or nothing if no known word is near."""
    by_lower = {name.lower(): name for name in reversed(list(known))}
    near = difflib.get_close_matches(word.lower(), list(by_lower), n=1, cutoff=cutoff)
    return f"did you mean '{by_lower[near[0]]}'?" if near else ""
