"""The three ways to fail, one class each.

Whose fault is it? The caller's (`UsageError`), the other side's (`PeerError`) or ours
(`InvariantViolation`). An expected outcome (an aborted transaction, a late event) is a value and
never an exception. This module knows nothing of files, subscriptions or networks.
"""

from __future__ import annotations


class ConcordantError(Exception):
    """Base of all errors that Concordant raises on purpose."""


class UsageError(ConcordantError):
    """What the caller gave breaks a rule.

    `message` says what happened and the rule, `hint` what to try, and `place` where it was found
    (file, line and column, as far as they are known).
    """

    def __init__(self, message: str, *, hint: str = "", place: str = "") -> None:
        self.message = message
        self.hint = hint
        self.place = place
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.place}: {self.message}" if self.place else self.message
        return f"{text}\n  try: {self.hint}" if self.hint else text

    def located(self, place: str) -> UsageError:
        """The same error with a place in front, for callers that know the file."""
        return UsageError(
            self.message, hint=self.hint, place=f"{place}:{self.place}" if self.place else place
        )


class PeerError(ConcordantError):
    """What another process sent breaks the protocol."""


class InvariantViolation(ConcordantError):  # noqa: N818 - the name says what was violated
    """Concordant broke its own rule: always a bug of ours."""
