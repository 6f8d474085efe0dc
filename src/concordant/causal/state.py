"""All that brokers and clients remember, and which part of it outlives a crash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from concordant.causal.chance import Chance
from concordant.causal.flush import Flush
from concordant.causal.horizon import Horizon
from concordant.causal.inbox import Inbox, Waiting
from concordant.causal.line import Line
from concordant.causal.messages import Attached, Id, Ordered
from concordant.causal.outbox import Outbox
from concordant.causal.pace import Pace
from concordant.causal.retained import Retained
from concordant.causal.safety import Safety, Stale
from concordant.causal.seen import Seen
from concordant.causal.service import Held, Session
from concordant.causal.stability import Stability
from concordant.causal.vector import Vector, entries, join, restricted
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
    horizon: Horizon = msgspec.field(default_factory=Horizon)
    safety: Safety = msgspec.field(default_factory=Safety)
    sessions: dict[str, Session] = {}
    detached: dict[str, int] = {}
    """By client: the last session that is over."""
    submissions: dict[str, list[Held]] = {}
    """By client: what waits for its context."""
    submitted: dict[str, int] = {}
    """By client: the number of its last publication that was ordered."""
    heard: Seen = msgspec.field(default_factory=Seen)
    """What was delivered, to know what is submitted again. It grows with the sources, of which a
    node admits so many (`publishers_max`), not with events."""
    copies: dict[Id, Vector] = {}
    """Events that were there already, ordered by another broker: where, if that is still kept."""
    repeated: dict[Id, bool] = {}
    """Events that were ordered once more, by another broker, at an earlier place in the line."""
    stale: Stale | None = None
    """What can be forgotten as soon as nothing of it can be repeated."""
    pushing: dict[str, dict[int, int]] = {}
    """By origin and number: how often an event is still to be pushed."""
    paces: dict[str, Pace] = {}
    """By broker: how often it is sent again what it lacks."""
    pulled: dict[str, bool] = {}
    """Whom something was pulled from in this tick."""
    retired: bool = False
    promised: int = 0
    """No round beyond this has been shown to anybody; it is durable."""
    patient_until: Instant = 0
    """After a crash, subscribers have so long to come back before they are no longer waited for."""

    def condensed(self) -> bytes:
        """The part that is kept: who is attached and what waits comes again by itself."""
        kept = msgspec.structs.replace(
            self,
            sessions={},
            submissions={},
            shown={},
            horizon=Horizon(),
            safety=Safety(),
            pulled={},
            pushing={},
            paces={},
        )
        kept.pending = Holdback(self.pending.count_max)
        return msgspec.msgpack.encode(kept)


class SubscriberState(msgspec.Struct):
    """All that a client remembers."""

    inbox: Inbox
    avoided: dict[str, bool] = {}
    """Brokers that were silent or are held for dead: only if there is no other."""
    outbox: Outbox = msgspec.field(default_factory=Outbox)
    line: Line = msgspec.field(default_factory=Line)
    """Of a subscriber that wants one order for all."""
    context: Vector = {}
    """Everything that was delivered or published, of topics that were left as well."""
    unwritten: Vector = {}
    """The part of it that others told, and that is not durable yet."""
    position: int = 0
    session: int = 0
    homes: dict[str, Attached | None] = {}
    """What each home has answered to the attach of this session."""
    attached: bool = False
    heard_at: dict[str, Instant] = {}
    asked_at: Instant = 0
    leaving: dict[str, int] = {}
    """Brokers that still have to be told that a session is over."""
    promised: dict[str, int] = {}
    """By topic: every event ordered from now on has a greater round."""
    acknowledged: bool = False
    """An event that waits was told to the homes since the last tick."""

    def learn(self, context: Vector, round: int) -> None:
        """Others know this, and what is published from now on comes after it."""
        join(self.context, context)
        self.outbox.learn(context)
        self.inbox.newest = max(self.inbox.newest, round)

    def move(self, topics: Iterable[str], joined_at: Mapping[str, int], *, total: bool) -> None:
        """A new session with these topics."""
        self.inbox.move(topics, joined_at)
        if total:
            self.inbox.last = self.line.move(self.inbox.last, self.inbox.topics)

    def begin(self, floors: list[Vector], missed: Iterable[Waiting]) -> None:
        """All homes have answered."""
        self.inbox.begin(floors, missed)
        self.line.floor = max((n for one in floors for *_, n in entries(one)), default=0)

    def finish(self, *, total: bool) -> None:
        """The catch-up is over."""
        fresh = tuple(self.inbox.fresh)
        self.inbox.finish()
        if total:
            join(self.line.base, restricted(self.inbox.last, fresh))

    def accept(self, number: int, context: Vector, round: int) -> None:
        """A broker has ordered a publication."""
        self.outbox.settle(number)
        self.inbox.newest = max(self.inbox.newest, round)
        join(self.context, context)

    def crashed(self) -> bytes:
        """What a crash would leave: sessions, and what waits, come again by themselves."""
        kept: SubscriberState = msgspec.msgpack.decode(
            msgspec.msgpack.encode(self), type=SubscriberState
        )
        kept.inbox.interrupt()
        kept.line.shown = None
        kept.outbox.turn(0)
        kept.outbox.news, kept.outbox.began_at = {}, 0
        kept.avoided, kept.homes, kept.heard_at, kept.leaving = {}, {}, {}, {}
        kept.attached, kept.asked_at, kept.promised, kept.acknowledged = False, 0, {}, False
        return msgspec.msgpack.encode(kept)
