"""Waiting times and bounds of brokers and clients, each with its reason."""

from __future__ import annotations

from typing import Literal

import msgspec

from concordant.causal.seen import REACH
from concordant.machine.instant import MILLISECOND, SECOND, Duration

Profile = Literal["local", "rounds"]
"""`local`: predecessors by topic, origin and position; a client may have several homes.
`rounds`: one age per broker, for a fixed set of brokers that all know each other; one home."""


class BrokerOptions(msgspec.Struct, frozen=True):
    """What a broker may do how often, and how much it keeps."""

    profile: Profile = "local"
    seed: int = 0
    """For the draws of whom to gossip with."""
    fanout: int = 3
    """So many peers are sent an event when it is delivered (f)."""
    push_count: int = 1
    """So often an event is pushed: when it is delivered, and on the ticks after that."""
    view_count_max: int = 15
    """They are drawn from a fresh random view of this size (l)."""
    tick_us: Duration = 20 * MILLISECOND
    """How often a digest goes to one peer, and stability is worked out."""
    resend_us: Duration = 100 * MILLISECOND
    """What does not arrive is sent again after this, twice this, and so on,"""
    resend_us_max: Duration = SECOND
    """and after this at the longest."""
    digest_count_max: int = 64
    """Events sent in answer to one digest, the oldest first; the next digest asks again."""
    pull_count_max: int = 64
    """Events sent to a subscriber in answer to one acknowledgement."""
    refresh_count_max: int = 2
    """Events that a subscriber has but cannot deliver, sent again with fewer predecessors."""
    pending_count_max: int = 10_000
    """Events held back; the youngest goes, and is asked for again by a digest."""
    submitted_count_max: int = 10_000
    """Client publishes held back for their context; more are not taken, and are repeated."""
    retained_count_max: int = 100_000
    """Events kept for others; beyond that the slowest subscriber is cut off and told so."""
    lease_us: Duration = 10 * SECOND
    """So long a silent subscriber keeps events from being forgotten."""
    pull: bool = True
    """Ask the sender of an event that cannot be delivered yet for what it follows, at once."""
    age_bits: int = 2
    """Of one age in the profile `rounds`; older predecessors cost an escape."""


class ClientOptions(msgspec.Struct, frozen=True):
    """Of clients."""

    acknowledge_us: Duration = 20 * MILLISECOND
    """How often a subscriber says what it has."""
    repeat_us: Duration = 200 * MILLISECOND
    """So long an answer may take before the question is repeated."""
    silence_us: Duration = SECOND
    """A broker that is silent for so long is left for another."""
    held_count_max: int = 10_000
    """Events held back; the youngest goes, and is sent again."""
    outbox_count_max: int = 10_000
    """Publications that wait for their turn; beyond that, publishing is refused."""
    flight_count_max: int = REACH
    """Publications under way to a broker; all of them are repeated when one is lost."""
