"""All that a broker remembers, and which part of it outlives a crash."""

from __future__ import annotations

import msgspec

from concordant.causal.chance import Chance
from concordant.causal.flush import Flush
from concordant.causal.messages import Ordered, Submitted
from concordant.causal.pace import Pace
from concordant.causal.retained import Retained
from concordant.causal.service import Held, Session
from concordant.causal.stability import Stability
from concordant.causal.vector import Vector
from concordant.machine.holdback import Holdback
from concordant.machine.instant import Instant


class BrokerState(msgspec.Struct):
    """All that a broker remembers."""

    chance: Chance
    pending: Holdback[tuple[int, str, int], Ordered]
    """By round: what an event follows has a smaller one."""
    delivered: Vector = {}
    """Of served topics: what was delivered. Of others: what lies in the past of something that
    was (VC)."""
    round: int = 0
    number: int = 0
    retained: Retained = msgspec.field(default_factory=Retained)
    stability: Stability = msgspec.field(default_factory=Stability)
    flush: Flush = msgspec.field(default_factory=Flush)
    shown: dict[str, int] = {}
    """By broker: the round that it has reached."""
    sessions: dict[str, Session] = {}
    detached: dict[str, int] = {}
    """By client: the last session that is over."""
    submissions: dict[str, Held] = {}
    submitted: dict[str, Submitted] = {}
    """By client: the last answer, for whoever asks again."""
    heard: dict[str, int] = {}
    """By source: the last of its events that was delivered, to know what is submitted again."""
    pushing: dict[str, dict[int, int]] = {}
    """By origin and number: how often an event is still to be pushed."""
    paces: dict[str, Pace] = {}
    """By broker: how often it is sent again what it lacks."""
    pulled: dict[str, bool] = {}
    """Whom something was pulled from in this tick."""
    retired: bool = False
    promised: int = 0
    """No round beyond this has been shown to anybody; it is durable."""
    record_count: int = 0
    """Records since the last condensed state."""
    patient_until: Instant = 0
    """After a crash, subscribers have so long to come back before they are no longer waited for."""

    def condensed(self) -> bytes:
        """The part that is kept: who is attached and what waits comes again by itself."""
        kept = msgspec.structs.replace(
            self, sessions={}, submissions={}, shown={}, pulled={}, pushing={}, paces={}
        )
        kept.pending = Holdback(self.pending.count_max)
        return msgspec.msgpack.encode(kept)
