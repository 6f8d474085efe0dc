"""The consumers that one replica of a merger serves: what they asked for, and what they get.

Everything that a replica has committed it may hand out. Consumers that are equally far with the
same filter get one batch; who has to know where it stands, or has something for itself alone, gets
one of its own. The module decides nothing: what is to be seen by whom is in the core.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from concordant.order.merging.core import Core
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

Answer = tuple[tuple[str, ...], Batch | Ended]
"""To whom, and what."""

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
    """So many items more it may be sent; what is not for it does not count."""
    answered: bool = False
    """It has heard of us since it asked, if only by an empty batch."""
    known: bool = False
    """It knows where its session began."""
    marking: bool = False
    """It waits for marks, whoever asked for them."""


class Readers(msgspec.Struct):
    """See the module's text."""

    asked: dict[Consumer, Asked] = {}
    news: bool = False
    """There may be something to answer."""

    def pulled(self, source: str, pull: Pull) -> None:
        """A consumer asks for items."""
        before, start = self.asked.get(pull.consumer), pull.start
        known = before is not None and (before.source, before.session) == (source, pull.session)
        if before is None or not known or pull.again:
            asked = Asked(source, pull.session, start, start, max(0, pull.end - start))
            asked.marking = known and before is not None and before.marking
        else:  # what is on its way need not be sent again
            asked = before
            asked.answered = False
            asked.sent, asked.next = max(asked.sent, start), max(asked.next, start)
            asked.room = max(asked.room, pull.end - asked.sent)
        self.asked[pull.consumer], self.news = asked, True

    def marks(self, consumer: Consumer) -> None:
        """A consumer waits for a mark, which may be there already."""
        asked = self.asked.get(consumer)
        if asked is not None:
            asked.marking, asked.next, self.news = True, asked.sent, True

    def answers(self, core: Core, options: MergingOptions) -> Iterator[Answer]:
        """Items for those who asked, as far as they are committed. Those who are equally far and
        have the same filter get them together."""
        if not self.news:
            return
        self.news = False
        base, total = core.base, core.end
        together: dict[tuple[bytes, int, int, int, bool], list[tuple[Session, Asked]]] = {}
        for consumer, asked in list(self.asked.items()):
            session = core.sessions.get(consumer)
            if session is None or session.number != asked.session:
                yield from self._unbegun(core, consumer, asked)
                continue
            if asked.sent < base or asked.sent < session.begin:
                asked.sent = asked.next = max(session.begin, base)
                asked.known = False
            if asked.answered and (asked.next >= total or asked.room <= 0):
                continue
            alone = session.version >= 0 or (session.alone and session.alone[-1] >= asked.sent)
            if alone or not asked.known:
                yield from self._alone(core, consumer, asked, options)
            else:
                room = min(asked.room, total - asked.sent)
                key = (session.key, asked.sent, asked.next, room, asked.marking)
                together.setdefault(key, []).append((session, asked))
        for some in together.values():
            yield from self._share(core, some, options)

    def _unbegun(self, core: Core, consumer: Consumer, asked: Asked) -> Iterator[Answer]:
        """The session has ended, or not begun."""
        if core.gone.get(consumer, 0) >= asked.session:
            del self.asked[consumer]
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
        if not self._worth(items, asked, end, options):
            asked.next = end
            return
        stands = (consumer, asked.session, max(session.begin, core.base), session.begin)
        end, items = _fitting(items, end, asked.room)
        asked.room -= len(items)
        for last, some in _pieces(items, end, options.batch_count_max):
            yield (asked.source,), Batch(name, asked.sent, last, packed(some), *stands)
            asked.sent = asked.next = last
        asked.answered = asked.known = True

    def _share(
        self, core: Core, some: list[tuple[Session, Asked]], options: MergingOptions
    ) -> Iterator[Answer]:
        """A batch for many that are equally far."""
        name, (session, asked) = name_of(core.signature), some[0]
        whole, passes = not session.key, session.filter.passes
        sent, end = asked.sent, max(core.end, asked.sent)
        items: list[Item] = [
            one
            for one in core.between(sent, end)
            if type(one) is Past or (type(one) is Ev and (whole or passes(one.event)))
        ]
        owed = not all(one.answered for _, one in some)
        if owed or self._worth(items, asked, end, options):
            end, items = _fitting(items, end, asked.room)
            for last, piece in _pieces(items, end, options.batch_count_max):
                data = packed(piece)
                for i in range(0, len(some), MANY_COUNT_MAX):
                    who = some[i : i + MANY_COUNT_MAX]
                    begins = tuple(one.begin for one, _ in who)
                    batch = Batch(name, sent, last, data, many=begins)
                    yield tuple(one.source for _, one in who), batch
                sent = last
            for _, one in some:
                one.room -= len(items)
        for _, one in some:
            one.sent, one.next, one.answered = sent, end, True

    def _worth(
        self, items: Sequence[Item], asked: Asked, end: int, options: MergingOptions
    ) -> bool:
        """Is there something to say? That nothing was for a consumer it hears now and then, so that
        it can say that it has done with it."""
        pause = min(options.window_count, options.lag_count_max) // 4
        if not (asked.answered and asked.known) or end - asked.sent > pause:
            return True
        new = (one for one in items if one.n >= asked.next)
        return any(asked.marking or type(one) is not Past for one in new)


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
