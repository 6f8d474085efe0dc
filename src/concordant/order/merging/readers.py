"""The consumers that one replica of a merger serves: what they asked for, and what they get.

Everything that a replica has committed it may hand out. Consumers that are equally far with the
same filter are a group and get one batch; who has to know where it stands, or has something for
itself alone, gets one of its own. A group stays together from batch to batch, so that a batch for
many costs a replica no more than one for a single consumer. Whoever asks for something else, runs
out of room or is meant alone leaves it, and joins again when it is as far as the others. The module
decides nothing: what is to be seen by whom is in the core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from concordant.order.merging.core import Core
from concordant.order.merging.filters import Filter
from concordant.order.merging.messages import (
    Batch,
    Consumer,
    Ended,
    Ev,
    Item,
    Past,
    Pull,
    packed,
)
from concordant.order.merging.options import MergingOptions
from concordant.order.merging.overlay import name_of
from concordant.order.merging.sessions import Session

_NOTHING = packed(())
_FOR_ALL = frozenset({Ev, Past})
"""What is for more than one."""

Answer = tuple[tuple[str, ...], Batch | Ended]
"""To whom, and what."""

Where = tuple[bytes, int, int, bool, bool]
"""What those of a group have in common: the filter, what was sent, what was looked at, whether they
wait for marks and whether they were answered."""

MANY_COUNT_MAX = 64
"""Consumers that one batch is for."""


class Asked(msgspec.Struct):
    """A consumer's wish for items, at this replica."""

    source: str
    session: int
    sent: int
    """What is below was sent."""
    next: int
    """What is below was sent, or is not worth a message yet."""
    room: int
    """So many items more it may be sent; what is not for it does not count. In a group it counts
    from the group's beginning."""
    answered: bool = False
    """It has heard of us since it asked, if only by an empty batch."""
    known: bool = False
    """It knows where its session began."""
    marking: bool = False
    """It waits for marks, whoever asked for them."""
    group: int = 0
    """Its group, which knows how far it is; 0 if it has none."""


class Group(msgspec.Struct):
    """Consumers that are equally far. All of them know where they stand and were answered, but for
    those who asked again."""

    key: bytes
    filter: Filter
    sent: int
    next: int
    marking: bool
    given: int = 0
    """Items that it was sent since it began."""
    least: int = 0
    """Nobody's room ends before this many."""
    members: dict[Consumer, int] = {}
    """And where their sessions began."""
    owed: list[Consumer] = []
    """Those who asked again."""
    addressed: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
    """To whom, and by which numbers, in pieces; empty when somebody came or went."""

    @property
    def where(self) -> Where:
        return (self.key, self.sent, self.next, self.marking, not self.owed)


class Readers(msgspec.Struct):
    """See the module's text."""

    asked: dict[Consumer, Asked] = {}
    single: dict[Consumer, bool] = {}
    """Those without a group."""
    groups: dict[int, Group] = {}
    number: int = 0
    """Of the last group."""
    ended: int = 0
    """The sessions of the core that had ended when it was looked last."""
    news: bool = False
    """There may be something to answer."""

    def pulled(self, source: str, pull: Pull) -> None:
        """A consumer asks for items."""
        consumer, start = pull.consumer, pull.start
        before, self.news = self.asked.get(consumer), True
        known = before is not None and (before.source, before.session) == (source, pull.session)
        if pull.leaves:
            if before is not None and known:
                self._leave(consumer, before)
                del self.asked[consumer], self.single[consumer]
            return
        if before is None or not known or pull.again:
            if before is not None:
                self._leave(consumer, before)
            asked = Asked(source, pull.session, start, start, max(0, pull.end - start))
            asked.marking = known and before is not None and before.marking
            self.asked[consumer], self.single[consumer] = asked, True
            return
        group = self.groups.get(before.group)
        if group is not None and start > group.sent:
            self._leave(consumer, before)
            group = None
        before.answered = False
        if group is None:  # what is on its way need not be sent again
            before.sent, before.next = max(before.sent, start), max(before.next, start)
            before.room = max(before.room, pull.end - before.sent)
        else:
            before.room = max(before.room, pull.end - group.sent + group.given)
            group.owed.append(consumer)

    def marks(self, consumer: Consumer) -> None:
        """A consumer waits for a mark, which may be there already."""
        asked = self.asked.get(consumer)
        if asked is not None:
            self._leave(consumer, asked)
            asked.marking, asked.next, self.news = True, asked.sent, True

    # --- groups -------------------------------------------------------------------------------

    def _leave(self, consumer: Consumer, asked: Asked) -> None:
        """It goes on by itself."""
        group = self.groups.get(asked.group)
        if group is None:
            return
        asked.group, asked.marking = 0, group.marking
        asked.sent, asked.next, asked.room = group.sent, group.next, asked.room - group.given
        self.single[consumer] = True
        del group.members[consumer]
        group.owed = [one for one in group.owed if one != consumer]
        group.addressed = []

    def _leave_if_gone(self, core: Core) -> None:
        """Whose session has ended is in no group."""
        self.ended = core.ended
        for group in self.groups.values():
            for consumer, begin in list(group.members.items()):
                asked, session = self.asked[consumer], core.sessions.get(consumer)
                known = session is not None and session.begin == begin
                if not known or core.sessions[consumer].number != asked.session:
                    self._leave(consumer, asked)

    def _join(
        self, consumer: Consumer, asked: Asked, session: Session, new: dict[Where, int]
    ) -> None:
        """It is in one group with others that are as far and were, or were not, answered."""
        where = (session.key, asked.sent, asked.next, asked.marking, asked.answered)
        if where not in new:
            self.number += 1
            new[where] = self.number
            at = (session.key, session.filter, asked.sent, asked.next, asked.marking)
            self.groups[self.number] = Group(*at, least=asked.room)
        asked.group = new[where]
        group = self.groups[asked.group]
        group.least = min(group.least, asked.room)
        group.members[consumer] = session.begin
        if not asked.answered:
            group.owed.append(consumer)
        del self.single[consumer]

    def _unite(self) -> None:
        """Groups that have become equally far are one."""
        there: dict[Where, int] = {}
        for number, group in list(self.groups.items()):
            if not group.members:
                del self.groups[number]
            elif (first := there.setdefault(group.where, number)) != number:
                into, more = self.groups[first], self.groups.pop(number)
                ahead = into.given - more.given
                for consumer in more.members:
                    asked = self.asked[consumer]
                    asked.group, asked.room = first, asked.room + ahead
                into.least = min(into.least, more.least + ahead)
                into.members |= more.members
                into.addressed = []

    # --- answers ------------------------------------------------------------------------------

    def answers(self, core: Core, options: MergingOptions) -> Iterator[Answer]:
        """Items for those who asked, as far as they are committed. Those who are equally far and
        have the same filter get them together."""
        if not self.news:
            return
        self.news = False
        if self.ended != core.ended:
            self._leave_if_gone(core)
        for group in self.groups.values():
            yield from self._share(core, group, options)
        new: dict[Where, int] = {}
        for consumer in list(self.single):
            yield from self._by_itself(core, consumer, new, options)
        for number in new.values():
            yield from self._share(core, self.groups[number], options)
        self._unite()

    def _by_itself(
        self, core: Core, consumer: Consumer, new: dict[Where, int], options: MergingOptions
    ) -> Iterator[Answer]:
        """One without a group: answered here, or put into one."""
        asked, session = self.asked[consumer], core.sessions.get(consumer)
        if session is None or session.number != asked.session:
            yield from self._unbegun(core, consumer, asked)
            return
        least = max(session.begin, core.base)
        if asked.sent < least:
            asked.sent = asked.next = least
            asked.known = False
        alone = session.version >= 0 or session.reads(asked.sent)
        if asked.known and not alone and asked.room > 0:
            self._join(consumer, asked, session, new)
        elif not asked.answered or (asked.next < core.end and asked.room > 0):
            yield from self._alone(core, consumer, asked, options)

    def _unbegun(self, core: Core, consumer: Consumer, asked: Asked) -> Iterator[Answer]:
        """The session has ended, or not begun."""
        if core.gone.get(consumer, 0) >= asked.session:
            del self.asked[consumer], self.single[consumer]
            yield (asked.source,), Ended(name_of(core.signature), consumer, asked.session)
        elif not asked.answered:
            asked.answered, at = True, asked.sent
            name = name_of(core.signature)
            empty = Batch(name, at, at, _NOTHING, consumer, asked.session, begin=-1)
            yield (asked.source,), empty

    def _alone(
        self, core: Core, consumer: Consumer, asked: Asked, options: MergingOptions
    ) -> Iterator[Answer]:
        """A batch for one: it has to know where it stands, or there is something for it alone."""
        session, name = core.sessions[consumer], name_of(core.signature)
        end = max(core.end, asked.sent)  # another replica may have been ahead of this one
        items = [one for one in core.between(asked.sent, end) if session.sees(one)]
        owed = not (asked.answered and asked.known)
        if not owed and not self._worth(items, asked, end, options):
            asked.next = end
            return
        stands = (consumer, asked.session, max(session.begin, core.base), session.begin)
        end, items = _fitting(items, end, asked.room)
        asked.room -= len(items)
        for last, some in _pieces(items, end, options.batch_count_max):
            yield (asked.source,), Batch(name, asked.sent, last, packed(some), *stands)
            asked.sent = asked.next = last
        asked.answered = asked.known = True

    def _share(self, core: Core, group: Group, options: MergingOptions) -> Iterator[Answer]:
        """A batch for a group; who has run out of room leaves it, and the others get the rest."""
        while group.members and (group.owed or group.next < core.end):
            if group.sent < core.base:  # what is missing here they have from another replica
                self._dismiss(group, list(group.members))
                return
            end = max(core.end, group.sent)  # another replica may have been ahead of this one
            found = core.between(group.sent, end)
            if not _FOR_ALL.issuperset(map(type, found)):
                meant = [one for one in group.members if core.sessions[one].reads(group.sent)]
                self._dismiss(group, meant)
            items = _passing(found, group)
            owed = len(group.owed) == len(group.members)
            if not owed and not self._worth(items, group, end, options):
                group.next = end
                self._dismiss(group, group.owed)
                return
            if group.given + len(items) > group.least:
                rooms = {one: self.asked[one].room for one in group.members}
                self._dismiss(group, [one for one, room in rooms.items() if room <= group.given])
                group.least = min((rooms[one] for one in group.members), default=group.given)
            if group.members:
                end, items = _fitting(items, end, group.least - group.given)
                yield from self._send(core, group, end, items, options)

    def _dismiss(self, group: Group, consumers: list[Consumer]) -> None:
        for consumer in consumers:
            self._leave(consumer, self.asked[consumer])

    def _send(
        self, core: Core, group: Group, end: int, items: list[Item], options: MergingOptions
    ) -> Iterator[Answer]:
        """Items up to a number, to everybody in a group."""
        if not group.addressed:
            all_of_it = list(group.members.items())
            for i in range(0, len(all_of_it), MANY_COUNT_MAX):
                some = all_of_it[i : i + MANY_COUNT_MAX]
                sources = tuple(self.asked[one].source for one, _ in some)
                group.addressed.append((sources, tuple(begin for _, begin in some)))
        name, sent = name_of(core.signature), group.sent
        for last, piece in _pieces(items, end, options.batch_count_max):
            data = packed(piece)
            for sources, begins in group.addressed:
                yield sources, Batch(name, sent, last, data, many=begins)
            sent = last
        group.sent = group.next = end
        group.given += len(items)
        for consumer in group.owed:
            self.asked[consumer].answered = True
        group.owed = []

    def _worth(
        self, items: Sequence[Item], to: Asked | Group, end: int, options: MergingOptions
    ) -> bool:
        """Is there something to say? That nothing was for a consumer it hears now and then, so that
        it can say that it has done with it."""
        pause = min(options.window_count, options.lag_count_max) // 4
        if end - to.sent > pause:
            return True
        new = (one for one in items if one.n >= to.next)
        return any(to.marking or type(one) is not Past for one in new)


def _passing(found: list[Item], group: Group) -> list[Item]:
    """What of it is for a group."""
    whole, passes = not group.key, group.filter.passes
    return [
        one
        for one in found
        if type(one) is Past or (type(one) is Ev and (whole or passes(one.event)))
    ]


def _fitting(items: list[Item], end: int, room: int) -> tuple[int, list[Item]]:
    """As many items as there is room for, and where they end."""
    if len(items) <= room:
        return end, items
    return items[room].n, items[:room]


def _pieces(items: list[Item], end: int, count_max: int) -> Iterator[tuple[int, list[Item]]]:
    """Items in pieces of a bounded size, each with the number where it ends; at least one."""
    for i in range(0, max(1, len(items)), count_max):
        some = items[i : i + count_max]
        yield (end if i + count_max >= len(items) else some[-1].n + 1), some
