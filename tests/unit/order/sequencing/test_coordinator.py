"""When the coordinator changes the ranking by itself, and when it does not."""

from __future__ import annotations

from concordant.machine.effects import Send
from concordant.machine.inputs import Received, TimerFired
from concordant.order.sequencing.coordinator import Coordinator
from concordant.order.sequencing.messages import (
    Parcel,
    Prepare,
    Prepared,
    Report,
    SequencingOptions,
    Survey,
    sequencer_of,
)

TOPICS = "abc"


class Surveyed:
    """A coordinator of three topics that are all held together, and what its sequencers say."""

    def __init__(self, **options: int) -> None:
        told = SequencingOptions(survey_us=1_000_000, **options)  # type: ignore[arg-type]
        addresses = {topic: sequencer_of(topic) for topic in TOPICS}
        self.machine = Coordinator(addresses, options=told)
        self._now = 0
        self._counts = dict.fromkeys(TOPICS, 0)
        self._sent = dict.fromkeys(TOPICS, 0)

    def survey(self, **events: int) -> str:
        """So many events since the last time; the ranking afterwards."""
        self._now += 1_000_000
        asked = self.machine.handle(self._now, TimerFired(("survey",)))
        sends = [one for one in asked if isinstance(one, Send)]
        assert [one.messages for one in sends] == [(Survey(),)] * len(TOPICS)
        for topic in TOPICS:
            self._counts[topic] += events.get(topic, 0)
            self.report(topic, self._counts[topic])
        return "".join(self.machine.order)

    def report(self, topic: str, n: int) -> None:
        others = tuple(one for one in TOPICS if one != topic)
        given = Received(sequencer_of(topic), (Report(topic, others, n),))
        for effect in self.machine.handle(self._now, given):
            if isinstance(effect, Send):
                for message in effect.messages:
                    if isinstance(message, Parcel) and isinstance(message.content, Prepare):
                        self._prepared(effect.to, message.content.epoch)

    def _prepared(self, address: str, epoch: int) -> None:
        topic = address[-1]
        self._sent[topic] += 1
        content = Prepared(epoch, topic, self._counts[topic])
        given = Received(address, (Parcel(0, self._sent[topic], content),))
        self.machine.handle(self._now, given)


def test_events_that_come_again_change_the_ranking() -> None:
    one = Surveyed()
    assert one.survey(c=100) == "abc"  # nothing has judged it yet
    assert one.survey(c=10)[0] == "c"


def test_events_that_do_not_come_again_change_nothing() -> None:
    one = Surveyed()
    one.survey(c=100)
    assert one.survey(a=10) == "abc"
    assert one.survey(a=10) == "abc"


def test_what_saves_less_has_to_wait_longer_each_time() -> None:
    one = Surveyed(sample_count=1)  # the survey before is all that is known
    lower, upper = {"a": 6, "b": 4}, {"a": 4, "b": 6}
    one.survey(**upper)
    assert one.survey(**upper)[:2] == "ba"
    assert [one.survey(**lower)[:2] for _ in range(2)] == ["ba", "ab"]  # two surveys later
    assert [one.survey(**upper)[:2] for _ in range(4)] == ["ab", "ab", "ab", "ba"]  # four
    assert [one.survey(**lower)[:2] for _ in range(8)] == ["ba"] * 7 + ["ab"]  # eight


def test_what_saves_most_of_the_way_does_not_wait() -> None:
    one = Surveyed(sample_count=1)
    for topic in "cacacac":
        one.survey(**{topic: 10})
        assert one.survey(**{topic: 10})[0] == topic


def test_a_report_from_long_ago_does_not_undo_what_is_known() -> None:
    one = Surveyed()
    one.survey(c=100)
    one.report("c", 1)
    assert one.survey(c=10)[0] == "c"
