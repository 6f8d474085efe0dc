"""What a batch holds, in a few lines: for people, and as a value for JSON."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from concordant.correlate.columns import Batch
from concordant.model.kind import Kind, format_instant


class TopicDescription(msgspec.Struct, frozen=True):
    """One topic: how many events, and the kinds of its attributes."""

    name: str
    count: int
    attributes: Mapping[str, Kind]


class Description(msgspec.Struct, frozen=True):
    """The inferred schema of a batch with counts; `str()` is the text for people."""

    event_count: int
    source_count: int
    first: str
    last: str
    topics: tuple[TopicDescription, ...]

    def __str__(self) -> str:
        events = _counted(self.event_count, "event")
        lines = [f"{events} from {_counted(self.source_count, 'source')}"]
        if self.event_count:
            lines.append(f"time {self.first} to {self.last}")
        for topic in self.topics:
            lines.append(f"{topic.name}: {_counted(topic.count, 'event')}")
            width = max((len(name) for name in topic.attributes), default=0)
            lines += [f"  {name:<{width}}  {kind}" for name, kind in topic.attributes.items()]
        return "\n".join(lines)


def describe(batch: Batch) -> Description:
    """Topics with counts and attributes, sources, and the range of times."""
    counts = np.bincount(batch.topic, minlength=len(batch.topics))
    empty = len(batch) == 0
    return Description(
        event_count=len(batch),
        source_count=len(np.unique(batch.source.values)),
        first="" if empty else format_instant(int(batch.time.min())),
        last="" if empty else format_instant(int(batch.time.max())),
        topics=tuple(
            TopicDescription(topic.name, int(count), dict(topic.attributes))
            for topic, count in zip(batch.topics.values(), counts, strict=True)
        ),
    )


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
