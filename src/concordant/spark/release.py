"""When a stream lets events go: log, frontier or watermark.

Pure: marks (how far each source has come) in, a time out, before which everything may be released.
`frontier` waits for every known source, so nothing is late and the cut into micro-batches does not
matter. `watermark` waits a given time and no longer. `log` takes a source's own numbers for the
order and never waits.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from concordant.errors import UsageError
from concordant.model.kind import INT_MAX, INT_MIN
from concordant.model.subscription import duration_text

Mode = Literal["log", "frontier", "watermark"]

_UNITS = {"us": 1, "ms": 1_000, "s": 1_000_000, "min": 60_000_000, "h": 3_600_000_000}
_DURATION = re.compile(r"(\d+)\s*(us|ms|s|min|h)")


class Release(msgspec.Struct, frozen=True):
    """A release mode with its settings."""

    mode: Mode
    delay_us: int = 0
    """Of a watermark: how late an event may be."""
    sources: tuple[str, ...] = ()
    """Sources that are known before they speak: nothing is released until all of them have."""
    idle_us: int | None = None
    """A source this far behind the furthest one is idle, and the frontier does not wait for it."""

    def __str__(self) -> str:
        delay = f" {duration_text(self.delay_us)}" if self.mode == "watermark" else ""
        return f"{self.mode}{delay}"

    def until(self, marks: Mapping[str, int]) -> int:
        """Events before this time may be released."""
        if self.mode == "log":
            return INT_MAX
        if not marks or any(source not in marks for source in self.sources):
            return INT_MIN
        furthest = max(marks.values())
        if self.mode == "watermark":
            return min(max(INT_MIN, furthest - self.delay_us), INT_MAX)
        return min(
            time
            for time in marks.values()
            if self.idle_us is None or time >= furthest - self.idle_us
        )

    def kept(self, marks: Mapping[str, int]) -> dict[str, int]:
        """The marks that later times depend on: without the others `until` says the same.

        A source whose mark is not kept may speak again: it is where its next event says.
        """
        if self.mode == "log" or (self.mode == "frontier" and self.idle_us is None) or not marks:
            return dict(marks)
        furthest = max(marks, key=lambda source: (marks[source], source))
        if self.mode == "watermark":
            return {s: time for s, time in marks.items() if s == furthest or s in self.sources}
        since = marks[furthest] - (self.idle_us or 0)
        return {s: time for s, time in marks.items() if time >= since or s in self.sources}


END = Release("watermark", -1)
"""Of an end of the input: a watermark just beyond the furthest event, so that nothing waits."""


def release_of(text: str, *, sources: Iterable[str] = (), idle: str | None = None) -> Release:
    """A release mode from its words.

    >>> str(release_of("watermark 10 s"))
    'watermark 10 s'
    """
    mode, _, rest = text.strip().partition(" ")
    idle_us = None if idle is None else duration_us(idle, "idle")
    if mode == "watermark":
        return Release("watermark", duration_us(rest, "watermark"), tuple(sources), idle_us)
    if mode in ("log", "frontier") and not rest:
        return Release(mode, 0, tuple(sources), idle_us)  # type: ignore[arg-type]
    raise UsageError(
        f"{text!r} is no way to release events",
        hint="say 'log' (one source, its numbers are the order), 'frontier' (wait for every "
        "source) or 'watermark 10 s' (wait so long)",
    )


def advanced(marks: Mapping[str, int], new: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Marks after some more were heard; a mark never goes back."""
    found = dict(marks)
    for source, time in new:
        found[source] = max(time, found.get(source, INT_MIN))
    return dict(sorted(found.items()))


def duration_us(text: str, what: str) -> int:
    """Microseconds of a duration; `what` needs it."""
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise UsageError(
            f"{text!r} is no duration for '{what}'", hint=f"write for example '{what} 10 s'"
        )
    return int(found[1]) * _UNITS[found[2]]
