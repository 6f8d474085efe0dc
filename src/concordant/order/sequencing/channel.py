"""Links between machines that lose, double and overtake nothing, over a network that does.

Each direction numbers its parcels from 1; the receiver takes the next number, holds back what is
ahead and acknowledges what it took; the sender repeats what is not acknowledged, waiting twice as
long each time. A link to a client belongs to a life of the client: in a new life both directions
begin anew, and what was on its way is dropped, because a client repeats its requests. Whoever owns
the channels makes durable what it took, and hands on the two timers that they need.
"""

from __future__ import annotations

from functools import partial
from itertools import islice, takewhile
from operator import ge

import msgspec

from concordant.machine.effects import Effect, Send, SetTimer
from concordant.machine.holdback import Holdback
from concordant.machine.instant import Duration, Instant
from concordant.order.sequencing.messages import Content, Parcel, Receipt, SequencingOptions

ACKNOWLEDGE = "acknowledge"
REPEAT = "repeat"


class Outbox(msgspec.Struct):
    """What is on its way to one machine."""

    life: int = 0
    last: int = 0
    waiting: dict[int, Content] = {}
    """Not acknowledged, by number, in order."""
    due: int = 0
    """What has this number or a smaller one was sent before the timer for repeats was set."""


class Inbox(msgspec.Struct):
    """What came from one machine."""

    held: Holdback[int, Content]
    life: int = 0
    next: int = 1


class Channels(msgspec.Struct):
    """All links of one machine."""

    held_count_max: int
    repeat_us: Duration
    repeat_us_max: Duration
    acknowledge_us: Duration
    answer_count_max: int
    life: int = 0
    """Of the client whose links these are; 0 at a sequencer."""
    outboxes: dict[str, Outbox] = {}
    inboxes: dict[str, Inbox] = {}
    coming: dict[str, Inbox] = {}
    """Of lives whose first parcel has not come: what overtook it."""
    ended: dict[str, bool] = {}
    """Clients that may be forgotten when there are too many, in the order in which they left."""
    owed: dict[str, bool] = {}
    """Who waits for an acknowledgement."""
    wait_us: Duration = 0
    """How long the next repeat waits."""
    acknowledging: bool = False
    repeating: bool = False

    @classmethod
    def of(cls, options: SequencingOptions) -> Channels:
        return cls(
            options.held_count_max,
            options.repeat_us,
            options.repeat_us_max,
            options.acknowledge_us,
            options.answer_count_max,
        )

    # --- timers -------------------------------------------------------------------------------

    def acknowledge_later(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """Not at once: one acknowledgement then stands for all that came meanwhile."""
        if not self.acknowledging:
            self.acknowledging = True
            out.append(SetTimer(ACKNOWLEDGE, now + self.acknowledge_us, cause))

    def repeat_later(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """To be called after every `post`."""
        if not self.repeating:
            self.repeating = True
            out.append(SetTimer(REPEAT, now + self.next_wait_us(), cause))

    def wake(self, now: Instant, name: str, cause: int, out: list[Effect]) -> None:
        """One of the two timers fired; others are none of its business."""
        if name == ACKNOWLEDGE:
            self.acknowledging = False
            out += [Send(to, (receipt,), cause) for to, receipt in self.receipts().items()]
        elif name == REPEAT:
            self.repeating = False
            repeats = self.repeats(self.answer_count_max)
            out += [Send(to, parcels, cause) for to, parcels in repeats.items()]
            if self.waiting_count:
                self.repeat_later(now, cause, out)

    def begin_again(self, now: Instant, cause: int, out: list[Effect]) -> None:
        """After a crash: what was sent is repeated, and what is owed will be asked for."""
        self.acknowledging = self.repeating = False
        self.owed = {}
        self.repeat_later(now, cause, out)

    # --- sending ------------------------------------------------------------------------------

    def post(self, to: str, content: Content) -> Parcel:
        """Number a content and keep it until it is acknowledged."""
        box = self.outboxes.get(to)
        if box is None:
            box = self.outboxes[to] = Outbox(self.life)
        box.last += 1
        box.waiting[box.last] = content
        return Parcel(box.life, box.last, content)

    def settle(self, source: str, receipt: Receipt) -> None:
        """Forget what the other side has."""
        box = self.outboxes.get(source)
        if box is None or receipt.life != box.life:
            return
        for n in list(takewhile(partial(ge, receipt.n), box.waiting)):
            del box.waiting[n]
            self.wait_us = self.repeat_us

    def repeats(self, count_max: int) -> dict[str, tuple[Parcel, ...]]:
        """What was sent before the timer was set and is still not acknowledged."""
        found: dict[str, tuple[Parcel, ...]] = {}
        for to, box in self.outboxes.items():
            if box.waiting:
                due = takewhile(partial(ge, box.due), box.waiting)
                late = list(islice(due, count_max))
                if late:
                    found[to] = tuple(Parcel(box.life, n, box.waiting[n]) for n in late)
        return found

    def next_wait_us(self) -> Duration:
        """How long the timer waits that is set now."""
        for box in self.outboxes.values():
            box.due = box.last
        wait_us = self.wait_us or self.repeat_us
        self.wait_us = min(2 * wait_us, self.repeat_us_max)
        return wait_us

    @property
    def waiting_count(self) -> int:
        return sum(len(box.waiting) for box in self.outboxes.values())

    # --- receiving ----------------------------------------------------------------------------

    def accept(self, source: str, parcel: Parcel) -> list[Content]:
        """The contents that a parcel makes ready; their numbers end before the inbox's `next`."""
        inbox = self._inbox(source)
        if parcel.life != inbox.life:
            if parcel.life < inbox.life or self.life:
                return []  # of an old life
            if parcel.n != 1:
                self._expect(source, parcel)
                return []
            inbox = self._renew(source, parcel.life)
            coming = self.coming.pop(source, None)
            if coming is not None and coming.life == parcel.life:
                inbox.held = coming.held
        self.owed[source] = True
        if parcel.n != inbox.next:
            if parcel.n > inbox.next:
                inbox.held.put(parcel.n, parcel.content)
            return []
        self.ended.pop(source, None)
        ready = [parcel.content]
        inbox.next += 1
        while (content := inbox.held.take(inbox.next)) is not None:
            ready.append(content)
            inbox.next += 1
        return ready

    def due(self, source: str) -> tuple[int, int]:
        """The life of a source, and the number of its parcel that is due."""
        inbox = self.inboxes.get(source)
        return (inbox.life, inbox.next) if inbox is not None else (0, 1)

    def _expect(self, source: str, parcel: Parcel) -> None:
        """Keep what is ahead of the first parcel of a new life."""
        coming = self.coming.get(source)
        if coming is None or coming.life < parcel.life:
            coming = self.coming[source] = Inbox(Holdback(self.held_count_max), parcel.life)
        if coming.life == parcel.life:
            coming.held.put(parcel.n, parcel.content)

    def replay(self, source: str, life: int, n: int) -> None:
        """A content of this number was taken before."""
        self.ended.pop(source, None)
        inbox = self._inbox(source)
        if inbox.life != life:
            inbox = self._renew(source, life)
        inbox.next = n + 1

    def has_room(self, client: str, count_max: int) -> bool:
        """Whether a client is known or can be; the one that left first is forgotten for it."""
        if client in self.inboxes:
            return True
        while self.ended and len(self.inboxes) >= count_max:
            gone = next(iter(self.ended))
            for table in (self.ended, self.inboxes, self.outboxes, self.coming, self.owed):
                table.pop(gone, None)
        return len(self.inboxes) < count_max

    def end(self, client: str) -> None:
        """A client has left, and will hardly come again in this life."""
        self.ended[client] = True

    def _inbox(self, source: str) -> Inbox:
        found = self.inboxes.get(source)
        if found is None:
            found = Inbox(Holdback(self.held_count_max), self.life)
            self.inboxes[source] = found
        return found

    def _renew(self, source: str, life: int) -> Inbox:
        """The client at the other end has a new life."""
        self.outboxes[source] = Outbox(life)
        inbox = self.inboxes[source] = Inbox(Holdback(self.held_count_max), life)
        return inbox

    def receipts(self) -> dict[str, Receipt]:
        """The acknowledgements that are owed; they are no longer, then."""
        found = {
            source: Receipt(self.inboxes[source].life, self.inboxes[source].next - 1)
            for source in self.owed
        }
        self.owed = {}
        return found
