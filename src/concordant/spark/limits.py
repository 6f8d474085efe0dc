"""When a run of a stream has done enough: so many micro-batches, relations, or so long.

A limit counts what this run did, not what the checkpoint holds. It is looked at between
micro-batches, so each of them is done whole or not begun. Pure: the clock is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from concordant.spark.pipeline import Streaming
from concordant.spark.release import duration_us
from concordant.spark.step import RELATIONS


class Enough(Exception):  # noqa: N818 - the name says what happened
    """Ends a query before it begins another micro-batch."""


@dataclass(frozen=True)
class Done:
    """What a checkpoint has done at some moment."""

    batch: int = -1
    """The newest micro-batch."""
    relations: int = 0

    @classmethod
    def of(cls, batch: int, counts: Mapping[str, int]) -> Done:
        return cls(batch, sum(n for key, n in counts.items() if key.startswith(RELATIONS)))


@dataclass(frozen=True)
class Limits:
    """The limits of one run, and where it began."""

    settings: Streaming
    before: Done
    started: float
    """Seconds of a clock."""

    def reached(self, done: Done, now: float) -> str:
        """Which limit is reached; nothing while there is none."""
        settings = self.settings
        if settings.batches_max and done.batch - self.before.batch >= settings.batches_max:
            return f"batches_max = {settings.batches_max}"
        if settings.relations_max and (
            done.relations - self.before.relations >= settings.relations_max
        ):
            return f"relations_max = {settings.relations_max}"
        passed_us = (now - self.started) * 1e6
        if settings.time_max and passed_us >= duration_us(settings.time_max, "time_max"):
            return f"time_max = '{settings.time_max}'"
        return ""
