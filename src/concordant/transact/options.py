"""Waiting times and bounds of transactions."""

from __future__ import annotations

import msgspec

from concordant.machine.instant import SECOND, Duration


class TransactOptions(msgspec.Struct, frozen=True):
    """Of a broker."""

    transaction_us: Duration = 30 * SECOND
    """So long a transaction may take, from its first message to its decision. What is not decided
    then is aborted: a silent client, a trigger without an answer, a broker that is away."""
    transaction_count_max: int = 10_000
    """Transactions that are open at one coordinator; another is refused."""
    mailbox_count_max: int = 100_000
    """Committed events that a client has not taken. A dynamic transaction with more for it is
    refused; a static one that brings more cuts it off: its subscriptions end."""
    waiting_count_max: int = 10_000
    """Operations of one static transaction that wait for others at one broker; with more it is
    refused."""
