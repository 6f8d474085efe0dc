"""Waiting times and bounds of ordered merging, each with what happens when it is reached."""

from __future__ import annotations

import msgspec

from concordant.machine.instant import MILLISECOND, SECOND, Duration
from concordant.order.replication import ReplicationOptions


class MergingOptions(msgspec.Struct, frozen=True):
    """Options of hosts and of clients; all of a cluster have the same."""

    replication: ReplicationOptions = ReplicationOptions()
    tick_us: Duration = 10 * MILLISECOND
    """How often it is looked what is overdue."""
    gather_us: Duration = 0
    """A host gathers messages for so long before it works on them."""
    repeat_us: Duration = 60 * MILLISECOND
    """What has no effect for so long is said again, to another replica where there is one."""
    mark_us: Duration = 2 * MILLISECOND
    """A client waits at least so long for an event that another stream waits for before it asks for
    a mark instead."""
    idle_us: Duration = 250 * MILLISECOND
    """A consumer is heard at least so often: its lease is renewed."""
    lease_us: Duration = 60 * SECOND
    """A subscriber that is silent for so long loses its session; it may attach again."""
    recut_us: Duration = 300 * MILLISECOND
    """A joiner waits so long for a donor's queues before it asks for another cut."""
    window_count: int = 1_000
    """Items of one stream that may be on their way."""
    batch_count_max: int = 500
    """Items in one message."""
    lag_count_max: int = 20_000
    """Items that a consumer may be behind; beyond that its merger takes in nothing more, so that
    parents and then publishers wait."""
    held_count_max: int = 10_000
    """Events of one publisher that are ahead of their turn; the farthest goes and is repeated."""
    outbox_count_max: int = 10_000
    """Events of one publisher on their way to a root; beyond that, publishing is refused."""
    merger_count_max: int = 10_000
    """Mergers that one host takes part in; a message for one more is refused."""
    ahead_us: Duration = 0
    """A conjunction that is subscribed at run time begins so far ahead of what was delivered."""
    replaced: tuple[str, ...] = ()
    """Hosts, or the nodes that have them, whose disks were lost: each begins with what the other
    replicas have. Only one of a merger's replicas at a time, and not before it has everything."""
    stamped: bool = False
    """Mergers take events by the times that roots gave them, instead of as they come: total order,
    at the price of waiting for the slowest topic."""
    hinted: bool = True
    """Logical times follow the leaders' clocks, so that disjunctions wait less."""


HOSTS = ("m1", "m2", "m3", "m4")
"""What simulated hosts are called."""
