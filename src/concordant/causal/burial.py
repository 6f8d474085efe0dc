"""What a broker does when others die, or hold it for dead: it sends and keeps what `flush` decides.

The lowest live broker asks all others what they have of the dead ones' events, and tells them what
exists. Who is told that it is dead stops for good.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import TYPE_CHECKING

from concordant.causal.flush import Kept
from concordant.causal.messages import FlushAsk, Flushed, FlushHeld, FlushTaken
from concordant.causal.outgoing import Outgoing
from concordant.causal.records import Died, Ended
from concordant.causal.vector import position
from concordant.machine.holdback import Holdback

if TYPE_CHECKING:
    from concordant.causal.broker import Broker


class Burial:
    """The part of a broker that deals with death. All of its state is the broker's."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def take(
        self, source: str, message: FlushAsk | FlushHeld | Flushed | FlushTaken, out: Outgoing
    ) -> None:
        """Another broker asks, answers, tells the end, or has been told."""
        state = self._broker.state
        if not isinstance(message, FlushTaken):
            self.adopt(message.dead, out)
        agreed = message.dead == state.flush.names
        match message:
            case FlushAsk():
                if not state.retired:
                    out.send(source, self.answer())
            case FlushHeld():
                if agreed:
                    self.answered(source, message.held, out)
            case Flushed():
                if agreed and not state.retired:
                    self.end(message.kept, out)
                    out.send(source, FlushTaken(message.dead))
            case FlushTaken():
                if agreed:
                    state.flush.taken[source] = True

    def adopt(self, suspects: Iterable[str], out: Outgoing) -> bool:
        """Hold brokers for dead, for good; True if that was new."""
        broker, state = self._broker, self._broker.state
        if broker.name in suspects:
            self.retire()
            out.persist(Ended())
            return True
        if not state.flush.adopt(suspects, broker.brokers):
            return False
        state.stability.touch_all()
        out.persist(Died(state.flush.names, None))
        self.coordinate(out)
        return True

    def retire(self) -> None:
        """Others go on without this broker; what it would still say could only do harm."""
        state = self._broker.state
        state.retired = True
        state.pending = Holdback(self._broker.options.pending_count_max)
        state.submissions, state.sessions = {}, {}

    def answer(self) -> FlushHeld:
        """What this broker has of the dead ones' events."""
        state = self._broker.state
        dead = state.flush.names
        held: Kept = {origin: {} for origin in dead}
        for one in (*state.retained.log.values(), *state.pending.waiting.values()):
            if one.origin in held:
                held[one.origin][one.number] = one.at
        return FlushHeld(dead, held)

    def coordinate(self, out: Outgoing) -> None:
        """Ask and tell the others, if that is the matter of this broker."""
        broker, flush = self._broker, self._broker.state.flush
        if not flush.dead or broker.state.retired:
            return
        if flush.coordinator(broker.brokers) != broker.name:
            return
        names = flush.names
        if not flush.done:
            self.answered(broker.name, self.answer().held, out)
        for peer in flush.live(broker.brokers):
            if peer == broker.name:
                continue
            if flush.done and peer not in flush.taken:
                out.send(peer, Flushed(names, flush.final))
            elif not flush.done and peer not in flush.answers:
                out.send(peer, FlushAsk(names))

    def answered(self, other: str, held: Kept, out: Outgoing) -> None:
        """A broker says what it has."""
        broker, flush = self._broker, self._broker.state.flush
        if flush.done:
            return
        kept = flush.answered(other, held, broker.brokers)
        if kept is not None:
            self.end(kept, out)
            for peer in flush.live(broker.brokers):
                if peer != broker.name:
                    out.send(peer, Flushed(flush.names, kept))

    def buried(self, origin: str, topics: Container[str]) -> bool:
        """Is a broker dead, and all that exists of its events of these topics here?"""
        state = self._broker.state
        if origin not in state.flush.dead or not state.flush.done:
            return False
        return all(
            n <= position(state.delivered, topic, origin)
            for at in state.flush.final[origin].values()
            for topic, n in at.items()
            if topic in topics
        )

    def end(self, kept: Kept, out: Outgoing) -> None:
        """It is agreed what exists."""
        state = self._broker.state
        if state.flush.done:
            return
        state.flush.end(state.flush.names, kept)
        out.persist(Died(state.flush.names, kept))
        state.pending.drop(lambda one: state.flush.refuses(one.origin, one.number))
        self._broker.drain(out)
