"""What every campaign takes and gives, so that `__main__` can run any of them.

A campaign is a module with `run(options) -> Report`. It prints nothing: it tells `options.progress`
how far it is, and its report says what was done and what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import RenderableType

from concordant.model.subscription import Policy


@dataclass(frozen=True)
class Options:
    """How long to search, and from where."""

    case_count: int = 110_000
    seed: int = 1
    job_count: int = 1
    policy: Policy | None = None
    """Only this policy."""
    protocols: tuple[str, ...] = ()
    """Only these protocols of the simulator; none named: all."""
    case: int | None = None
    """Only the case of this number: a replay."""
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None
    """Told the stage, how much of it is done, and how much there is."""


@dataclass
class Report:
    """What a campaign did. It passed if nothing is in `failures`."""

    name: str
    tables: list[RenderableType] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
