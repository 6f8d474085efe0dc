"""The simulated network: how long a packet takes, and whether it arrives.

Links are made when they are first used. A link draws latencies from a model, queues packets behind
its bandwidth, and keeps their order if it is told to. Trouble (loss, duplication, reordering,
partitions) comes and goes with faults. The module decides arrival times; what arrives is none of
its business. All chance comes from one seeded generator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil, log
from random import Random
from typing import Literal

import msgspec

from concordant.machine.inputs import Message

Draw = Callable[[], int]
"""The latency of the next packet, in microseconds."""

LATENCY_US_MIN = 50
"""No packet is faster, whatever a Gaussian says."""

TREE_DEGREE = 16
"""Children of a node of the dissemination tree: Pastry routes by one hexadecimal digit per hop."""

FAST_SHARE, FAST, SLOW = 0.8, (21_000, 10_850), (240_000, 129_270)
"""Mean and deviation of fast and slow links, in microseconds (Baldoni 2011, section 6)."""


class Latency(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """How long packets take on a link."""

    model: Literal["constant", "uniform", "two-gaussian"] = "uniform"
    low_us: int = 1_000
    """Of `constant`, the latency; of `uniform`, the smallest."""
    high_us: int = 5_000

    def __post_init__(self) -> None:
        if not 0 <= self.low_us <= self.high_us and self.model == "uniform":
            raise ValueError("low_us must be at least 0 and at most high_us")

    def draw(self, rng: Random) -> Draw:
        """The latencies of one link."""
        if self.model == "constant":
            latency = self.low_us
            return lambda: latency
        random = rng.random
        if self.model == "uniform":
            low, span = self.low_us, self.high_us - self.low_us + 1
            return lambda: low + int(random() * span)
        mean, deviation = FAST if random() < FAST_SHARE else SLOW
        gauss = rng.gauss
        return lambda: max(LATENCY_US_MIN, int(gauss(mean, deviation)))


class NetworkSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A network as a scenario describes it."""

    latency: Latency = Latency()
    fifo: bool = False
    """Links keep the order of their packets."""
    bytes_per_s: int = 0
    """Bandwidth of each link; 0 is without bound."""
    dissemination: Literal["direct", "tree"] = "direct"
    """`direct`: to each listener by a link of its own, so in any order. `tree`: over an overlay."""
    overlay_nodes: int = 0
    """Nodes of the overlay; the tree has as many hops as the logarithm of this, to the base 16."""


class Trouble:
    """What is wrong with the network right now; faults change it."""

    __slots__ = ("any", "duplication", "loss", "parts", "reorder_us", "reordering")

    def __init__(self) -> None:
        self.any = False
        self.loss = self.duplication = self.reordering = 0.0
        self.reorder_us = 0
        self.parts: dict[str, int] = {}
        """The part of each node; packets between parts are lost. Nodes not named are in part 0."""

    def revise(self) -> None:
        """To be called after a change."""
        self.any = bool(self.loss or self.duplication or self.reordering or self.parts)


class Link:
    """One direction between two machines."""

    __slots__ = ("draw", "free_at", "last_at", "local", "source", "target")

    def __init__(self, source: str, target: str, draw: Draw, *, local: bool) -> None:
        self.source = source
        self.target = target
        self.draw = draw
        self.local = local
        self.free_at = 0
        self.last_at = 0


class Network:
    """Arrival times of packets."""

    def __init__(self, spec: NetworkSpec, rng: Random, count: Callable[[str], None]) -> None:
        self.spec = spec
        self.trouble = Trouble()
        self._rng = rng
        self._count = count
        self._plain = not spec.fifo and not spec.bytes_per_s
        self._hops: dict[tuple[str, int, int], Draw] = {}
        self._paths: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {}
        self._nodes = max(2, spec.overlay_nodes)
        self._hops_mean = max(1.0, log(self._nodes, TREE_DEGREE))
        self._depth = ceil(self._hops_mean)

    def link(self, source: str, target: str) -> Link:
        """A new link between two nodes; one within a node takes no time."""
        local = source == target
        return Link(
            source, target, _at_once if local else self.spec.latency.draw(self._rng), local=local
        )

    def arrivals(
        self, now: int, link: Link, messages: Sequence[Message], delay_us: int | None = None
    ) -> Sequence[int]:
        """When a packet that leaves now arrives: never, once, or more often.

        `delay_us` is given where the way is not the link's own, but one through a tree.
        """
        if link.local:
            return (now,)
        at = now + (link.draw() if delay_us is None else delay_us)
        if self._plain and not self.trouble.any:
            return (at,)
        if self.spec.bytes_per_s:
            start = max(now, link.free_at)
            link.free_at = start + self._bytes(messages) * 1_000_000 // self.spec.bytes_per_s
            at += link.free_at - now
        if self.trouble.any:
            return self._troubled(at, link)
        return (self._in_order(at, link),)

    def _in_order(self, at: int, link: Link) -> int:
        if self.spec.fifo:
            at = link.last_at = max(at, link.last_at)
        return at

    def _troubled(self, at: int, link: Link) -> Sequence[int]:
        trouble, random = self.trouble, self._rng.random
        if self.parted(link.source, link.target):
            self._count("partition")
            return ()
        if trouble.loss and random() < trouble.loss:
            self._count("loss")
            return ()
        if trouble.reordering and random() < trouble.reordering:
            self._count("reordering")
            at += int(random() * trouble.reorder_us)
        at = self._in_order(at, link)
        if trouble.duplication and random() < trouble.duplication:
            self._count("duplication")
            return (at, self._in_order(at + link.draw(), link))
        return (at,)

    def parted(self, source: str, target: str) -> bool:
        """True if a partition lies between two nodes."""
        parts = self.trouble.parts
        return bool(parts) and parts.get(source, 0) != parts.get(target, 0)

    @staticmethod
    def _bytes(messages: Sequence[Message]) -> int:
        return len(msgspec.msgpack.encode(messages))

    # --- the dissemination tree ---------------------------------------------------------------

    def tree_delays(self, topic: str, source: str, links: Sequence[Link]) -> list[int]:
        """How much later each listener hears of a packet: up to the root, and down the tree.

        Every topic has a tree of its own. Listeners below one node share the hops above it, so a
        slow hop is slow for all of them (SCRIBE over Pastry, as Baldoni 2011 simulates it).
        """
        height = len(self._path(topic, f"^{source}"))
        up = sum(self._hop((f"^{source}", level, 0))() for level in range(height))
        drawn: dict[tuple[int, int], int] = {}
        found: list[int] = []
        for link in links:
            total = up
            for step in self._paths.get((topic, link.target)) or self._path(topic, link.target):
                delay = drawn.get(step)
                if delay is None:
                    delay = drawn[step] = self._hop((topic, *step))()
                total += delay
            found.append(total)
        return found

    def _path(self, topic: str, target: str) -> tuple[tuple[int, int], ...]:
        """The nodes of the tree below the root, by level: the logarithm of them in the mean."""
        found = self._paths.get((topic, target))
        if found is None:
            near = self._rng.random() < self._depth - self._hops_mean
            depth = max(1, self._depth - near)
            place = self._rng.randrange(self._nodes)
            found = self._paths[topic, target] = tuple(
                (level, place // TREE_DEGREE ** (self._depth - level))
                for level in range(1, depth + 1)
            )
        return found

    def _hop(self, which: tuple[str, int, int]) -> Draw:
        draw = self._hops.get(which)
        if draw is None:
            draw = self._hops[which] = self.spec.latency.draw(self._rng)
        return draw


def _at_once() -> int:
    return 0
