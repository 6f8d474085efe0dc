"""What a client of the topic sequencers remembers, as one value that goes to bytes and back."""

from __future__ import annotations

import msgspec

from concordant.machine.instant import Instant
from concordant.order.client import ClientState
from concordant.order.sequencing.channel import Channels
from concordant.order.sequencing.lease import Tenancy
from concordant.order.sequencing.overlap import Version
from concordant.order.sequencing.publisher import Pipeline
from concordant.order.sequencing.subscriber import Merge


class Joining(msgspec.Struct):
    """A topic on its way to be subscribed."""

    topic: str
    version: Version = (0, 0)
    """Nothing was sent yet if it is (0, 0)."""
    unanswered: dict[str, bool] = {}
    """Sequencers that have not answered, by topic."""
    sent_at: Instant = 0
    wanted: bool = True
    """False: it was unsubscribed meanwhile."""


class SequencingState(ClientState, kw_only=True):
    """What a client remembers."""

    pipeline: Pipeline
    merge: Merge
    tenancy: Tenancy
    channels: Channels
    life: int = 0
    version: int = 0
    registered: dict[str, bool] = msgspec.field(default_factory=dict)
    """Topics whose sequencers may think that they are held here."""
    joining: Joining | None = None
    queue: list[str] = msgspec.field(default_factory=list)
    """Topics to be subscribed next."""
    leaving: bool = False
    """Sequencers are to be told what is held, when no topic is on its way."""
    sending: bool = False
    """The timer is set that sends events."""
    asking: bool = False
    expires_at: Instant = 0
