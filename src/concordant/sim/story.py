"""The story of a run: a line per step, with what came in and what went out, for people.

It watches a world and changes nothing. Periodic chatter (timers and marks that led to nothing but
more of the same) is left out unless it is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from concordant.machine.effects import (
    Deliver,
    Disseminate,
    Effect,
    Ignore,
    Listen,
    Note,
    Persist,
    Send,
    SendAll,
)
from concordant.machine.inputs import Command, Input, Listening, Message, Received, Started
from concordant.order.streams import Ask, Gone, Here, Mark, Numbered, Where
from concordant.sim.world import Place, World


class Story:
    """Collects lines; give its `watch` to `simulate`."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def watch(self, world: World, place: Place, given: Input, effects: Sequence[Effect]) -> None:
        done = [text for effect in effects if (text := _effect(effect))]
        if not done and not isinstance(given, Started | Command):
            return
        what = ", ".join(done) or "nothing to do"
        time = f"{world.now / 1_000:9.3f} ms"
        self.lines.append(f"{time}  {place.address:<10} {_input(given)}: {what}")


def _input(given: Input) -> str:
    if isinstance(given, Received):
        return f"{_messages(given.messages)} from {given.source}"
    if isinstance(given, Command):
        return ", ".join(type(request).__name__.lower() for request in given.requests)
    if isinstance(given, Started):
        return "starts again" if given.records else "starts"
    if isinstance(given, Listening):
        return f"hears {', '.join(given.topics)}"
    return f"timer {', '.join(given.names)}"


def _effect(effect: Effect) -> str:
    match effect:
        case Deliver():
            return " ".join(
                f"delivers {'+'.join(event.id for event in one.events)}"
                + ("" if one.in_order else " out of order")
                for one in effect.deliveries
            )
        case Send() if not _chatter(effect.messages):
            return f"sends {_messages(effect.messages)} to {effect.to}"
        case SendAll() if not _chatter(effect.messages):
            return f"sends {_messages(effect.messages)} to {', '.join(effect.to)}"
        case Disseminate() if not _chatter(effect.messages):
            return f"disseminates {_messages(effect.messages)} on {effect.topic}"
        case Persist():
            return f"writes {len(effect.records)}"
        case Note() if effect.step == "publish":
            return f"publishes {' '.join(event.id for event in effect.events)}"
        case Note():
            return f"{effect.step or 'notes'} {', '.join(effect.topics) or effect.text}"
        case Listen():
            return f"listens to {', '.join(effect.topics)}"
        case Ignore():
            return f"ignores {', '.join(effect.topics)}"
        case _:
            return ""


def _chatter(messages: Sequence[Message]) -> bool:
    return all(type(message).__name__ in ("Mark", "Heartbeat") for message in messages)


def _messages(messages: Sequence[Message]) -> str:
    return " ".join(_message(message) for message in messages)


def _message(message: Message) -> str:
    match message:
        case Numbered():
            return f"{message.event.id} as number {message.n}"
        case Mark():
            return f"mark {message.n}"
        case Ask():
            return f"ask {message.first}..{message.last}"
        case Gone():
            return f"gone before {message.first}"
        case Where():
            return f"where is {message.topic}"
        case Here():
            return f"here at {message.mark.n}"
        case _:
            return type(message).__name__.lower()
