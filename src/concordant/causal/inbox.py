"""The delivery rule of a subscriber: what it has, what waits, and what may be delivered now.

After an attach there is a floor, up to which everything that still matters came with the catch-up.
Below the floor order comes from rounds (whatever an event follows has a smaller one), above it from
predecessors. An event is passed silently, without reaching the application, if the subscriber had
it already or if it is older than the subscription of its topics: a topic that was joined a moment
ago must not bring causes of what was delivered before.

The inbox knows no session and sends nothing; `subscriber` does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from concordant.causal.messages import Carried, Id
from concordant.causal.rounds import decode
from concordant.causal.seen import Seen
from concordant.causal.vector import Entry, Vector, entries, join, lift, position, restricted
from concordant.machine.holdback import Holdback
from concordant.model.event import Event

ANY_TOPIC = ""
"""In a need: the origin's position in whichever topic is farthest (profile `rounds`)."""


class Waiting(msgspec.Struct):
    """An event, and the positions that must be reached before it."""

    carried: Carried
    needs: tuple[Entry, ...]


class Inbox(msgspec.Struct):
    """What a subscriber has, and what waits."""

    waiting: Holdback[tuple[int, str, int], Waiting]
    """Events above the floor, by round."""
    topics: dict[str, bool] = {}
    left: dict[str, bool] = {}
    """Topics that were held once, and are not now."""
    last: Vector = {}
    """What was delivered or passed, in the topics that are held."""
    floor: Vector = {}
    catchup: dict[Id, Waiting] = {}
    """Events below the floor that are still to be delivered."""
    fresh: dict[str, bool] = {}
    """Topics whose catch-up has not ended since they were joined: nothing old is wanted."""
    joined_at: dict[str, int] = {}
    """By topic: the last round that was delivered before it was joined."""
    joining: dict[str, bool] = {}
    """Topics that are not yet promised: older rounds are still to be expected."""
    newest: int = 0
    """The largest round delivered or published (L)."""
    seen: Seen = msgspec.field(default_factory=Seen)
    """What was delivered, or too old; once more, it is a repetition. It grows with the sources, not
    with events."""

    def move(self, topics: Iterable[str], joined_at: Mapping[str, int]) -> None:
        """Begin again with these topics; those of `joined_at` want nothing old."""
        self.left.update(self.topics)
        self.topics = dict.fromkeys(topics, True)
        self.left = {topic: True for topic in self.left if topic not in self.topics}
        self.last = restricted(self.last, self.topics)
        self.interrupt()
        for topic, newest in joined_at.items():
            self.fresh[topic] = True
            self.joining[topic] = True
            self.joined_at[topic] = newest
        for kept in (self.fresh, self.joining, self.joined_at):
            for topic in [one for one in kept if one not in self.topics]:
                del kept[topic]

    def interrupt(self) -> None:
        """Forget what waits: it comes again with the next session."""
        self.floor, self.catchup = {}, {}
        self.waiting = Holdback(self.waiting.count_max)

    def to_join(self, topics: Iterable[str]) -> dict[str, int]:
        """Of these topics, those that are new or still fresh, with the round to start after."""
        new = [topic for topic in topics if topic not in self.topics or topic in self.fresh]
        return dict.fromkeys(new, self.newest)

    def begin(self, floors: Iterable[Vector], missed: Iterable[Waiting]) -> None:
        """All homes have answered."""
        for floor in floors:
            join(self.floor, restricted(floor, self.topics))
        for one in missed:
            carried = one.carried
            if any(
                topic in self.topics and n > position(self.last, topic, carried.origin)
                for topic, n in carried.at.items()
            ):
                self.catchup[carried.id] = one

    def waiting_ids(self) -> tuple[Id, ...]:
        return (*self.catchup, *((origin, number) for _, origin, number in self.waiting))

    def put(self, one: Waiting) -> None:
        """Take an event above the floor, or newer needs of one that waits."""
        carried = one.carried
        if carried.id in self.catchup:
            self.catchup[carried.id] = one
            return
        if not self._new(carried):
            return
        key = (carried.round, carried.origin, carried.number)
        self.waiting.take(key)
        self.waiting.put(key, one)

    def _new(self, carried: Carried) -> bool:
        """Is a position in a held topic beyond what is there?"""
        origin = carried.origin
        for topic, n in carried.at.items():
            if (
                topic in self.topics
                and n > position(self.last, topic, origin)
                and n > position(self.floor, topic, origin)
            ):
                return True
        return False

    # --- delivery -----------------------------------------------------------------------------

    def direct(self, one: Waiting) -> bool:
        """Is it the next one, while nothing waits? Then it need not wait either."""
        return (
            not self.waiting.waiting
            and not self.catchup
            and self._new(one.carried)
            and self._reached(one.needs)
        )

    def ready(self) -> Iterator[Carried]:
        """Events that may be delivered, each to be passed before the next is asked for."""
        again = True
        while again:
            again = False
            blocked: int | None = None
            for identity, one in sorted(self.catchup.items(), key=_by_round):
                if blocked is not None and one.carried.round > blocked:
                    break
                if self._reached(one.needs):
                    del self.catchup[identity]
                    yield one.carried
                    again = True
                elif blocked is None:
                    blocked = one.carried.round
            for key in self.waiting:
                if blocked is not None and key[0] > blocked:
                    break
                one = self.waiting.waiting[key]
                if not self._new(one.carried):
                    self.waiting.take(key)
                elif self._reached(one.needs):
                    self.waiting.take(key)
                    yield one.carried
                    again = bool(self.catchup)

    def _reached(self, needs: Sequence[Entry]) -> bool:
        for topic, origin, n in needs:
            if topic == ANY_TOPIC:
                if self._best(origin) < n:
                    return False
            elif position(self.last, topic, origin) < n and position(self.floor, topic, origin) < n:
                return False
        return True

    def _best(self, origin: str) -> int:
        return max(
            max(position(self.last, topic, origin), position(self.floor, topic, origin))
            for topic in self.topics
        )

    def silent(self, carried: Carried, *, again: bool = False) -> bool:
        """Is it nothing for the application? `again`: repetitions are somebody else's matter."""
        event = carried.event
        if not again and (self._had(carried.again) or (event.source, event.seq) in self.seen):
            return True
        old = True
        for topic, n in carried.at.items():
            if topic in self.topics:
                if not again and n <= position(self.last, topic, carried.origin):
                    return True
                if topic not in self.joining and carried.round > self.joined_at.get(topic, 0):
                    old = False
        return old

    def _had(self, places: Vector | None) -> bool:
        """Was it passed at its first place, or too old there?"""
        return places is not None and all(
            n <= position(self.last, topic, origin) for topic, origin, n in entries(places)
        )

    def passed(self, carried: Carried, *, silent: bool) -> None:
        """It was delivered, or silently passed."""
        for topic, n in carried.at.items():
            if topic in self.topics:
                lift(self.last, topic, carried.origin, n)
        self.seen.add(carried.event.source, carried.event.seq)
        if not silent:
            self.newest = max(self.newest, carried.round)

    def shown(self, carried: Carried) -> Event:
        """The event under a topic that is held: its own, or the first that it is addressed to."""
        topic = carried.event.topic
        if topic in carried.at and topic in self.topics and topic not in self.joining:
            return carried.event
        held = (one for one in sorted(carried.at) if one in self.topics and one not in self.joining)
        return msgspec.structs.replace(carried.event, topic=next(held, topic))

    @property
    def caught_up(self) -> bool:
        """Has the catch-up just come to its end?"""
        return not self.catchup and bool(self.floor or self.fresh)

    def finish(self) -> None:
        """The catch-up is over; an attach before its end must still skip a new topic's past."""
        join(self.last, self.floor)
        self.floor, self.fresh = {}, {}

    @property
    def held_count(self) -> int:
        return len(self.catchup) + len(self.waiting)


def _by_round(item: tuple[Id, Waiting]) -> int:
    return item[1].carried.round


def needs_of(carried: Carried, brokers: Sequence[str]) -> Waiting:
    """An event with the positions that must be reached before it, whatever the profile."""
    if not carried.ages:
        return Waiting(carried, carried.predecessors)
    ages = decode(carried.ages, brokers)
    aged = ((ANY_TOPIC, origin, carried.round - age) for origin, age in ages.items())
    return Waiting(carried, (*carried.predecessors, *aged))
