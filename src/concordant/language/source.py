"""Subscription text as a source of places: lines, columns, carets, and the bounds on raw text.

It knows where something stands and how deep parentheses go; it does not know the grammar. The
bounds are tested on a scan of the text, before any parser or recursion sees it.
"""

from __future__ import annotations

import re

from concordant.errors import UsageError
from concordant.language.normal import NESTING_DEPTH_MAX

TEXT_LENGTH_MAX = 1 << 18
"""Characters in one text: far more than a person writes, little enough to parse in seconds."""

_EXCERPT_LENGTH_MAX = 100
"""Characters of a source line shown in an error; longer lines are cut around the caret."""

_PIECES = re.compile(
    r'"(?:\\[^\n]|[^"\\\n])*"'
    r"|'(?:\\[^\n]|[^'\\\n])*'"
    r"|`(?:\\.|[^`\\])*`"
    r"|#[^\n]*|\w+|\S",
    re.DOTALL,
)


class Refused(Exception):  # noqa: N818 - inside the package only; leaves it as a UsageError
    """What stands at offset `at` breaks a rule."""

    def __init__(self, at: int, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.at = at
        self.message = message
        self.hint = hint


class Source:
    """A text, the file or argument it came from, and errors that point into it."""

    def __init__(self, text: str, place: str = "") -> None:
        self.text = text.removeprefix("\ufeff")  # the mark that some editors put first
        self.place = place

    def error(self, at: int, message: str, hint: str = "") -> UsageError:
        """A `UsageError` with line, column and a caret under the character at offset `at`."""
        start = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", at)
        line = self.text[start : end if end >= 0 else len(self.text)].rstrip("\r")
        place = f"{self.text.count(chr(10), 0, at) + 1}:{at - start + 1}"
        return UsageError(
            message + _excerpt(line, at - start),
            hint=hint,
            place=f"{self.place}:{place}" if self.place else place,
        )

    def check_bounds(self) -> None:
        """Refuse text that is too long, too deep or empty."""
        if len(self.text) > TEXT_LENGTH_MAX:
            raise UsageError(
                f"the text has {len(self.text):,} characters, and {TEXT_LENGTH_MAX:,} are allowed",
                hint="split it into several files",
                place=self.place,
            )
        if not self._check_nesting():
            raise self.error(
                0,
                "the text holds no subscription",
                "name a topic, as in: Order then Payment within 10 min",
            )

    def _check_nesting(self) -> bool:
        """Refuse deep nesting of parentheses and 'not'; is there anything but comments?"""
        opened: list[int] = []
        depth = pending = 0  # levels of open parentheses with their 'not's; 'not's just read
        found = False
        for piece in _PIECES.finditer(self.text):
            word = piece.group()
            if word.startswith("#"):
                continue
            found = True
            if word == "(":
                opened.append(pending + 1)
                depth += pending + 1
            elif word == ")" and opened:
                depth -= opened.pop()
            pending = pending + 1 if word == "not" else 0
            if depth + pending > NESTING_DEPTH_MAX:
                raise self.error(
                    piece.start(),
                    f"parentheses and 'not' are nested more than {NESTING_DEPTH_MAX} deep",
                    "a chain of 'and' or 'or' needs no parentheses",
                )
        return found


def _excerpt(line: str, column: int) -> str:
    if not line.strip():
        return ""
    start = max(0, column - _EXCERPT_LENGTH_MAX // 2) if len(line) > _EXCERPT_LENGTH_MAX else 0
    end = start + _EXCERPT_LENGTH_MAX
    before, after = ("…" if start else ""), ("…" if end < len(line) else "")
    shown = "".join(c if c.isprintable() or c == "\t" else " " for c in line[start:end])
    pad = "".join("\t" if c == "\t" else " " for c in before + shown[: column - start])
    return f"\n    {before}{shown}{after}\n    {pad}^"
