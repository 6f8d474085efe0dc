"""What a client may ask for: topics that somebody serves, times that increase, homes that suffice.

A batch of requests is looked at as a whole before anything changes. The rules know who serves what,
and nothing of sessions.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from concordant.causal.homes import homes_for
from concordant.causal.inbox import needs_of
from concordant.causal.messages import (
    Attached,
    Carried,
    Detached,
    Excluded,
    Heard,
    Known,
    Submitted,
)
from concordant.causal.outbox import Outbox
from concordant.causal.placement import Members, brokers_of, topics_of
from concordant.causal.requests import Address, Migrate
from concordant.errors import PeerError, UsageError
from concordant.machine.inputs import Message, Request
from concordant.machine.instant import Instant
from concordant.machine.requests import Publish, Retire, Subscribe, Unsubscribe
from concordant.machine.saved import Compact

_UNDERSTOOD = frozenset({Carried, Submitted, Attached, Heard, Detached, Excluded})


class Rules:
    """The rules of one client."""

    def __init__(
        self,
        name: str,
        members: Members,
        *,
        publishes: Iterable[str] | None,
        prefers: Iterable[str],
        several: bool,
    ) -> None:
        self._name = name
        self._publishes = None if publishes is None else tuple(dict.fromkeys(publishes))
        self._several = several
        self.brokers = brokers_of(members)
        self.serves = {one: topics_of(members, one) for one in self.brokers}
        self._served: dict[tuple[str, ...], bool] = {}
        """Topics that one broker serves together, as far as that was asked."""
        self.order = tuple(dict.fromkeys((*prefers, *self.brokers)))
        """The preferred brokers first."""
        for one in self.order:
            if one not in self.serves:
                raise UsageError(f"there is no broker {one!r}", hint=_listed(self.brokers))
        for topic in self._publishes or ():
            self.homes((topic,))

    def homes(self, topics: tuple[str, ...], avoided: Container[str] = ()) -> tuple[str, ...]:
        """Who is to serve these topics; those to be avoided only if it takes them."""
        liked = [one for one in self.order if one not in avoided]
        try:
            return homes_for(topics, self.serves, order=liked, several=self._several)
        except UsageError:
            return homes_for(topics, self.serves, order=self.order, several=self._several)

    def suffice(self, homes: Iterable[str], topics: Iterable[str]) -> bool:
        """Is every topic served by one of the homes?"""
        kept = tuple(homes)
        return all(any(topic in self.serves[one] for one in kept) for topic in topics)

    def check(self, requests: Sequence[Request], held: Iterable[str], outbox: Outbox) -> int:
        """Refuse what cannot be done; how many events are published."""
        lasts: dict[str, Instant] = {}
        count = 0
        topics = dict.fromkeys(held, True)
        for request in requests:
            if isinstance(request, Publish | Address):
                count += 1
                self._check_publication(request, outbox, lasts)
            elif isinstance(request, Subscribe):
                topics.update(dict.fromkeys(request.topics, True))
                self.homes(tuple(topics))
            elif isinstance(request, Unsubscribe):
                for topic in request.topics:
                    topics.pop(topic, None)
            elif isinstance(request, Migrate):
                self._check_homes(request.homes, tuple(topics))
            elif not isinstance(request, Compact | Retire | Known):
                raise UsageError(f"a causal client cannot {type(request).__name__}")
        return count

    def check_message(self, source: str, message: Message) -> None:
        """Refuse what a broker does not say, or what a stranger says."""
        if type(message) is Known:
            return
        if source not in self.serves:
            raise PeerError(f"{source} is no broker and sent a {type(message).__name__}")
        if type(message) not in _UNDERSTOOD:
            raise PeerError(f"a causal client was sent a {type(message).__name__}")
        if type(message) is Carried:
            needs_of(message, self.brokers)
        elif isinstance(message, Attached):
            for one in message.catchup:
                needs_of(one, self.brokers)

    def _check_publication(
        self, request: Publish | Address, outbox: Outbox, lasts: dict[str, Instant]
    ) -> None:
        targets = targets_of(request)
        known = self._publishes
        for topic in targets:
            if known is not None and topic not in known:
                raise UsageError(
                    f"{self._name} does not publish to the topic {topic!r}",
                    hint=f"it publishes to {', '.join(known) or 'nothing'}",
                )
        if targets not in self._served:
            homes_for(targets, self.serves, order=self.order, several=False)
            self._served[targets] = True
        if request.time is not None:
            who = plain(request).source or self._name
            last = lasts.get(who, outbox.source(who).clock.last)
            if request.time <= last:
                raise UsageError(
                    f"{who} has published at {last} already, and a source's times increase: "
                    f"{request.time} is too early",
                    hint="leave the time out, and the client's clock gives one",
                )
            lasts[who] = request.time

    def _check_homes(self, homes: tuple[str, ...], topics: tuple[str, ...]) -> None:
        known = [one for one in homes if one in self.serves]
        if (
            len(known) < len(homes)
            or not self.suffice(known, topics)
            or (len(homes) > 1 and not self._several)
        ):
            raise UsageError(
                f"{self._name} cannot be served by {', '.join(homes) or 'nobody'}",
                hint=f"{_listed(self.brokers)}, and one of the homes must serve each of "
                f"{', '.join(topics)}",
            )


def targets_of(request: Publish | Address) -> tuple[str, ...]:
    """The topics that an event is addressed to."""
    if isinstance(request, Publish):
        return (request.topic,)
    if not request.topics:
        raise UsageError("an event needs a topic", hint="give at least one")
    return tuple(dict.fromkeys(request.topics))


def plain(request: Publish | Address) -> Publish:
    """The same as a request that every client understands."""
    if isinstance(request, Publish):
        return request
    topic = targets_of(request)[0]
    return Publish(topic, request.attributes, request.time, request.source, request.id)


def _listed(brokers: Sequence[str]) -> str:
    return f"the brokers are {', '.join(brokers)}"
