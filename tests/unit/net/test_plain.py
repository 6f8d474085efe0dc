"""Plain messages: whatever comes is events or a refusal; what goes out can be read again."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from concordant.machine.effects import Delivery
from concordant.model.event import Event
from concordant.net.plain import (
    CONTENT_TYPES,
    Format,
    Refusal,
    events_of,
    message_of,
    name_of,
    subject_of,
    topic_of,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)
HEADERS = st.dictionaries(
    st.sampled_from(["Content-Type", "ce-type", "ce-id", "ce-source", "ce-specversion", "x"]),
    st.sampled_from([*CONTENT_TYPES.values(), "1.0", "", "a%20b", "%ff", "text/plain"]),
    max_size=5,
)


@given(st.binary(max_size=100) | JSON.map(lambda value: json.dumps(value).encode()), HEADERS)
def test_any_bytes_are_events_or_refused_with_a_reason(
    data: bytes, headers: dict[str, str]
) -> None:
    try:
        found = events_of("A", data, headers, count_max=5)
    except Refusal as refusal:
        assert refusal.reason.isalpha()
        assert refusal.sentence
    else:
        assert 1 <= len(found) <= 5
        for event in found:
            assert all(isinstance(name, str) for name in event.attributes)
            assert event.time is None and not event.id


@given(JSON)
def test_json_and_messagepack_say_the_same(value: object) -> None:
    def outcome(data: bytes, kind: str) -> object:
        try:
            return events_of("A", data, {"Content-Type": kind}, count_max=5)
        except Refusal as refusal:
            return refusal.reason

    try:
        packed = msgspec.msgpack.encode(value)
    except OverflowError:
        return  # MessagePack has no integers of more than 64 bits
    in_json = outcome(msgspec.json.encode(value), "application/json")
    if "NaN" not in json.dumps(value) and "Infinity" not in json.dumps(value):  # not in JSON
        assert outcome(packed, "application/msgpack") == in_json


@given(st.text(min_size=1, max_size=40))
def test_any_topic_is_a_subject_and_comes_back(topic: str) -> None:
    subject = subject_of("events", topic)
    assert not set(subject) & set(" *>\t\r\n")
    assert all(subject.split("."))
    assert topic_of("events", subject) == topic


def test_a_subject_that_is_no_text_is_refused() -> None:
    with pytest.raises(Refusal, match="names no topic"):
        topic_of("events", "events.%ff")


def test_a_name_tells_repetitions_of_one_publisher_and_topic() -> None:
    def name(topic: str, **said: object) -> str:
        (event,) = events_of(topic, json.dumps(said).encode(), None, count_max=1)
        return name_of(event)

    assert name("A") == ""
    assert name("A", id="1") == name("A", id="1", n=7)
    distinct = [
        name("A", id="1"),
        name("B", id="1"),
        name("A", id="2"),
        name("A", id="1", source="s"),
        name("A", id="1", source="s A"),
    ]
    assert len(set(distinct)) == 5


@pytest.mark.parametrize("format", list(CONTENT_TYPES))
def test_what_goes_out_has_place_topic_time_and_attributes(format: Format) -> None:
    event = Event("A.b", "gateway", 7, 1_000_001, {"n": 1, "origin.id": "x", "origin.source": "s"})
    data = message_of(Delivery((event,), 42, in_order=False), 40, format=format)
    found = msgspec.msgpack.decode(data) if format == "msgpack" else json.loads(data)
    if format == "cloudevents":
        assert found == {
            "specversion": "1.0",
            "type": "A.b",
            "source": "s",
            "id": "x",
            "time": "1970-01-01T00:00:01.000001Z",
            "sequence": f"{42:020d}",
            "previous": 40,
            "inorder": False,
            "datacontenttype": "application/json",
            "data": {"n": 1},
        }
    else:
        assert found == {
            "position": 42,
            "previous": 40,
            "in_order": False,
            "topic": "A.b",
            "source": "gateway",
            "seq": 7,
            "id": "gateway:7",
            "time": 1_000_001 if format == "msgpack" else "1970-01-01T00:00:01.000001Z",
            "attributes": {"n": 1, "origin.id": "x", "origin.source": "s"},
        }
