"""Histories: what processes did, one row per step; every checker and every figure reads them.

A history is a sequence of rows. The rows of one process stand in the order in which it did them;
rows of different processes are ordered by nothing but their time. A row says what happened, never
whether that was right.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from concordant.model.event import Event
from concordant.model.kind import Value

Step = Literal[
    "publish",
    "deliver",
    "subscribe",
    "unsubscribe",
    "transaction",
    "suspect",
    "crash",
    "restart",
    "end",
]
"""`suspect`: the process no longer waits for those whom `text` names.
`end`: the driver saw that nothing was left to do, so whatever is owed must be there."""


class Row(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    repr_omit_defaults=True,
    forbid_unknown_fields=True,
):
    """One step of one process.

    >>> Row("run", "p1", "publish", events=("p1:1",), topics=("Quote",))
    Row(run='run', process='p1', step='publish', topics=('Quote',), events=('p1:1',))
    """

    run: str
    process: str
    step: Step
    time_us: int = 0
    """Virtual or real time, given by the driver."""
    subscription: str = ""
    """Name of the subscription that a delivery answers, or that begins or ends."""
    text: str = ""
    """What is said in words: the text of a new subscription, the step of a transaction."""
    topics: tuple[str, ...] = ()
    """Published: where to. Subscribed: which ones. Delivered: the topic of each event."""
    events: tuple[str, ...] = ()
    """Ids: the published event, or the delivered events in slot order (one without correlation)."""
    conjunction: int = 0
    """Number in the text from 1; 0 for deliveries without correlation."""
    key: tuple[Value, ...] = ()
    position: int = 0
    """Of a delivery: its place in what this process delivered for the subscription, from 1."""
    in_order: bool = True
    """False: delivered out of the promised order and marked so."""
    level: str = ""
    """Of a subscription: the order that was promised; empty if nothing was said."""
    event: Event | None = None
    """The published event itself, where a checker must evaluate predicates."""
