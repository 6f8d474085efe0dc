"""Instants and durations: physical time as integers, given by the driver.

A core never asks what time it is. `now` is an instant of the node's own clock, in microseconds;
clocks of different nodes may differ.
"""

from __future__ import annotations

Instant = int
"""Microseconds of a node's clock."""

Duration = int
"""Microseconds between two instants."""

MILLISECOND: Duration = 1_000
SECOND: Duration = 1_000_000
