"""Literals: how names, strings, numbers and durations are written.

Each function takes the text of one literal and gives its value, or refuses it with a sentence. It
knows neither places in a text nor what a literal is used for.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction

from concordant.errors import UsageError
from concordant.model.kind import INT_MAX

DIGIT_COUNT_MAX = 40
"""Digits in one whole number or duration; none that fits in 64 bits needs more, so that no huge
number is ever calculated only to be refused."""

_SECOND = 1_000_000
_UNIT_WORDS = {
    1: "us µs μs microsecond microseconds",
    1_000: "ms millisecond milliseconds",
    _SECOND: "s sec secs second seconds",
    60 * _SECOND: "min mins minute minutes",
    3_600 * _SECOND: "h hour hours",
    86_400 * _SECOND: "d day days",
}
UNITS = {word: size for size, words in _UNIT_WORDS.items() for word in words.split()}
"""Units of time, in microseconds."""

UNIT_HINT = "the units are us, ms, s, min, h and d, as in: 5 min"

_DURATION = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([^\W\d]\w*)")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "'": "'", "\\": "\\"}


def integer(text: str) -> int:
    """A whole number that fits in 64 bits.

    >>> integer("0012")
    12
    """
    digits = text.lstrip("0") or "0"
    if len(digits) > DIGIT_COUNT_MAX or int(digits) > INT_MAX:
        raise too_large(text)
    return int(digits)


def too_large(text: str) -> UsageError:
    """The error for a whole number that does not fit in 64 bits."""
    shown = text if len(text) <= DIGIT_COUNT_MAX else text[:DIGIT_COUNT_MAX] + "…"
    return UsageError(
        f"{shown} does not fit in 64 bits",
        hint=f"whole numbers go up to {INT_MAX}; write a larger one as a float, such as 1e19",
    )


def real(text: str) -> float:
    """A finite float.

    >>> real("2.5e3")
    2500.0
    """
    value = float(text)
    if not math.isfinite(value):
        raise UsageError(f"{text} is not a finite number", hint="floats go up to about 1.79e308")
    return value


def duration_us(text: str) -> int:
    """Microseconds of a duration.

    >>> duration_us("1.5 ms")
    1500
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        missing = text.strip().isdigit()
        raise UsageError(
            f"{text!r} has no unit of time" if missing else f"{text!r} is not a duration",
            hint=UNIT_HINT,
        )
    number, unit = found.groups()
    if unit not in UNITS:
        raise UsageError(f"'{unit}' is not a unit of time", hint=UNIT_HINT)
    if len(number) > DIGIT_COUNT_MAX:
        raise UsageError("the duration has too many digits", hint=UNIT_HINT)
    exact = Fraction(number) * UNITS[unit]
    if exact.denominator != 1:
        raise UsageError(
            f"{text} is not a whole number of microseconds",
            hint="the smallest duration is 1 us",
        )
    if exact > INT_MAX:
        raise UsageError(
            f"{text} does not fit in 64 bits of microseconds",
            hint="the largest duration is about 292,000 years",
        )
    return int(exact)


def string(text: str) -> str:
    r"""The value of a string in double or single quotes with backslash escapes.

    >>> string('"a\\tb"') == "a\tb"
    True
    """

    def character(found: re.Match[str]) -> str:
        escape = found.group(1)
        if len(escape) == 5:
            return chr(int(escape[1:], 16))
        if escape not in _ESCAPED:
            raise UsageError(
                f"'\\{escape}' is not an escape",
                hint=r"the escapes are \n \r \t \" \' \\ and \u00e9; write \\ for a backslash",
            )
        return _ESCAPED[escape]

    return _ESCAPE.sub(character, text[1:-1])


def name(text: str) -> str:
    r"""A plain name as it is, or a name in backticks without them.

    >>> name("`market.quotes`")
    'market.quotes'
    """
    if not text.startswith("`"):
        return str(text)  # a plain string, also of the parser's tokens
    return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
