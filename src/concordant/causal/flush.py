"""The flush: after a broker died, all others agree which of its events still exist.

An event of a dead broker may have reached nobody, and others may wait for it for ever. So the
lowest live broker asks all live ones what they have of the dead ones' events; from that moment they
take nothing more of them. What somebody has will reach everybody; everything else is lost for
everybody, and is no longer waited for. That is safe because the past of an event names every
position directly: nothing hides behind a lost event.

Death is for good, whether it was true or not. The set of the dead only grows, and names the round
of the flush: whoever coordinates it follows from the set, so no two brokers coordinate the same
one. A suspicion that would leave no majority of all brokers is not adopted; hence of two parts of a
network at most one goes on without the other, and the others learn, when they speak to it, that
they are held for dead and stop. The module decides; sending is the broker's matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

Kept = dict[str, dict[int, dict[str, int]]]
"""Of each dead origin: numbers with their positions."""


class Flush(msgspec.Struct):
    """Who is dead, and how far the flush is."""

    dead: dict[str, bool] = {}
    final: Kept = {}
    """What exists of the events of dead origins, as far as that is agreed."""
    final_for: tuple[str, ...] = ()
    """The dead of the last flush that came to its end here."""
    answers: dict[str, Kept] = {}
    """As a coordinator: what others have."""
    taken: dict[str, bool] = {}
    """As a coordinator: who has been told the end."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self.dead))

    @property
    def done(self) -> bool:
        """Is it agreed what exists of all dead ones' events?"""
        return self.names == self.final_for

    def adopt(self, suspects: Iterable[str], brokers: Sequence[str]) -> bool:
        """Hold these for dead, as long as a majority lives; True if there is one more."""
        grown = False
        for suspect in sorted(suspects):
            if suspect in brokers and suspect not in self.dead:
                if 2 * (len(brokers) - len(self.dead) - 1) <= len(brokers):
                    continue
                self.dead[suspect] = True
                grown = True
        if grown:
            self.answers, self.taken = {}, {}
        return grown

    def live(self, brokers: Sequence[str]) -> list[str]:
        return [broker for broker in brokers if broker not in self.dead]

    def coordinator(self, brokers: Sequence[str]) -> str:
        return min(self.live(brokers))

    def answered(self, broker: str, held: Kept, brokers: Sequence[str]) -> Kept | None:
        """Note an answer; when all live ones have answered, what exists."""
        self.answers[broker] = held
        if any(one not in self.answers for one in self.live(brokers)):
            return None
        kept: Kept = {name: {} for name in self.names}
        for answer in self.answers.values():
            for origin, numbers in answer.items():
                kept.get(origin, {}).update(numbers)
        return kept

    def end(self, dead: tuple[str, ...], kept: Kept) -> None:
        self.final = kept
        self.final_for = dead

    def refuses(self, origin: str, number: int) -> bool:
        """May an event that came just now no longer be taken?"""
        if origin not in self.dead:
            return False
        return number not in self.final.get(origin, {})
