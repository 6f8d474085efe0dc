"""The contract of a machine, and what it means for two lists of effects to be equal.

A machine is a protocol's core: `handle(now, input) -> effects`. It has no clock, socket, file,
thread or chance of its own, so a driver can be a simulator, an event loop or a test, and a run can
be repeated from its inputs. `flat` is the measure of the law that a batch equals its items one by
one: effects may be gathered into batches, and messages into one that says the same, but nothing on
any way out may change its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, runtime_checkable

from concordant.machine.effects import (
    CancelTimer,
    Deliver,
    Disseminate,
    Effect,
    Ignore,
    Listen,
    Note,
    Persist,
    Send,
    SendAll,
    SetTimer,
)
from concordant.machine.inputs import Input, Message
from concordant.machine.instant import Instant


class Machine(Protocol):
    """What every protocol's core looks like to a driver."""

    def handle(self, now: Instant, given: Input) -> Sequence[Effect]:
        """Take one input and say what is to be done.

        The first input of a life is `Started`. A bad request raises `UsageError`, a message that
        breaks the protocol `PeerError`; the machine is then as it was before. What is late, doubled
        or no longer wanted is normal and no error.
        """
        ...

    @property
    def held_count(self) -> int:
        """Items that wait here for something: 0 everywhere is what a quiet system looks like."""
        ...

    def snapshot(self) -> bytes:
        """The whole state as bytes."""
        ...

    def restore(self, data: bytes) -> None:
        """Go on from a snapshot of a machine that was made with the same arguments."""
        ...


@runtime_checkable
class Gathered(Protocol):
    """A message that stands for several, which could as well be sent one after the other."""

    def one_by_one(self) -> Iterator[Message]: ...


Way = tuple[str, ...]

_Single = Send | Disseminate | Listen | Ignore | SetTimer | CancelTimer | Persist | Deliver | Note
"""What has one way out."""


def flat(effects: Iterable[Effect]) -> dict[Way, list[Any]]:
    """Items by their way out, each way in its order; a timer is what it was last set to.

    >>> one = [Send("a", (1,)), Deliver(("x",)), Send("a", (2,))]
    >>> many = [Send("a", (1, 2)), Deliver(("x",))]
    >>> flat(one) == flat(many)
    True
    """
    ways: dict[Way, list[Any]] = {}
    for effect in effects:
        if isinstance(effect, SendAll):
            for to in effect.to:
                ways.setdefault(("send", to), []).extend(_single(effect.messages))
            continue
        way, items = _items(effect)
        if way[0] == "timer":
            ways[way] = items
        elif isinstance(effect, Persist) and effect.replaces:
            ways[way] = ["in place of all before", *items]
        else:
            ways.setdefault(way, []).extend(items)
    return ways


def _single(messages: Iterable[Message]) -> Iterator[Message]:
    for one in messages:
        yield from one.one_by_one() if isinstance(one, Gathered) else (one,)


def _items(effect: _Single) -> tuple[Way, list[Any]]:
    match effect:
        case Send():
            return ("send", effect.to), list(_single(effect.messages))
        case Disseminate():
            return ("disseminate", effect.topic), list(_single(effect.messages))
        case Deliver():
            return ("deliver",), list(effect.deliveries)
        case Persist():
            return ("persist",), list(effect.records)
        case SetTimer():
            return ("timer", effect.name), [effect.at]
        case CancelTimer():
            return ("timer", effect.name), []
        case Listen() | Ignore():
            return ("listen",), [(type(effect).__name__, topic) for topic in effect.topics]
        case Note():
            said = effect.events or effect.topics or (effect.text,)
            return ("note", effect.step or effect.text), list(said)
