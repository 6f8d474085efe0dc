"""What a client published, put together again from its streams."""

from __future__ import annotations

from random import Random

import pytest

from concordant.model.event import Event
from concordant.order.fifo import as_published


@pytest.mark.parametrize("seed", range(20))
def test_streams_and_sources_keep_their_orders(seed: int) -> None:
    rng = Random(seed)
    seqs = dict.fromkeys("abc", 0)
    streams: dict[str, list[Event]] = {"T": [], "U": [], "V": []}
    for _ in range(60):
        source, topic = rng.choice("abc"), rng.choice("TUV")
        seqs[source] += rng.randint(1, 3)
        streams[topic].append(Event(topic, source, seqs[source], 1, {}))
    found = as_published(streams.values())
    assert len(found) == 60
    for topic, stream in streams.items():
        assert [event for event in found if event.topic == topic] == stream
    for source in seqs:
        mine = [event.seq for event in found if event.source == source]
        assert mine == sorted(mine)
