"""Writing is the inverse of reading, and a file appears whole or not at all."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from concordant.correlate.columns import Batch
from concordant.errors import UsageError
from concordant.files import atomic_output, describe, read_events, to_arrow, write_events
from concordant.files.atomic import refuse_existing
from concordant.model.event import Event
from concordant.model.kind import INT_MAX, INT_MIN, Kind
from concordant.model.topic import Topic

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=6)
WORD = st.from_regex(r"w[a-z,\"\n é]{0,5}", fullmatch=True)
"""Text that CSV cannot take for another kind."""
INTEGERS = st.integers(INT_MIN, INT_MAX)
TIMES = st.integers(-(10**15), 10**16)
FLOATS = st.floats(allow_nan=False)
VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOL: st.booleans(),
    Kind.INT: INTEGERS,
    Kind.FLOAT: FLOATS,
    Kind.STRING: TEXT,
    Kind.TIME: TIMES,
    Kind.NULL: st.none(),
}


@st.composite
def batches(draw: Callable[..., Any], values: dict[Kind, st.SearchStrategy[Any]]) -> Batch:
    """Random events of up to three topics; a name has one kind in all of them, as in a table."""
    kinds = draw(
        st.dictionaries(st.sampled_from("abcd"), st.sampled_from(list(values)), max_size=4)
    )
    topics = [
        Topic(name, {key: kind for key, kind in kinds.items() if draw(st.booleans())})
        for name in draw(st.lists(WORD, min_size=1, max_size=3, unique=True))
    ]
    keys = draw(st.lists(st.tuples(WORD, INTEGERS), min_size=1, max_size=8, unique=True))
    events = []
    for number, (source, seq) in enumerate(keys):
        topic = draw(st.sampled_from(topics))
        attributes = {
            name: value
            for name, kind in topic.attributes.items()
            if (value := draw(st.none() | values[kind])) is not None
        }
        given_id = draw(st.sampled_from(["", f"id{number}"]))
        events.append(Event(topic.name, source, seq, draw(TIMES), attributes, given_id))
    return Batch.of(events, topics)


def written_and_read(batch: Batch, extension: str) -> list[Event]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"e{extension}"
        write_events(batch, path)
        assert [item.name for item in Path(folder).iterdir()] == [path.name]
        return list(read_events(path).events())


@settings(max_examples=60, deadline=None)
@given(batch=batches(VALUES), extension=st.sampled_from([".parquet", ".arrow", ".feather"]))
def test_tables_give_back_the_events_written(batch: Batch, extension: str) -> None:
    assert written_and_read(batch, extension) == list(batch.events())
    assert list(read_events(to_arrow(batch)).events()) == list(batch.events())


FINITE = VALUES | {Kind.FLOAT: st.floats(allow_nan=False, allow_infinity=False)}
del FINITE[Kind.TIME]


@settings(max_examples=60, deadline=None)
@given(batch=batches(FINITE), extension=st.sampled_from([".jsonl", ".jsonl.gz"]))
def test_json_lines_give_back_the_events_written(batch: Batch, extension: str) -> None:
    assert written_and_read(batch, extension) == list(batch.events())


@settings(max_examples=60, deadline=None)
@given(batch=batches(VALUES | {Kind.STRING: WORD}), extension=st.sampled_from([".csv", ".csv.gz"]))
def test_csv_gives_back_the_events_written_when_texts_look_like_texts(
    batch: Batch, extension: str
) -> None:
    assert written_and_read(batch, extension) == list(batch.events())


def one(value: Any, kind: Kind, name: str = "x") -> Batch:
    return Batch.of([Event("T", "s", 1, 0, {name: value})], [Topic("T", {name: kind})])


def test_times_become_text_in_json_lines(tmp_path: Path) -> None:
    write_events(one(1_000_000, Kind.TIME), tmp_path / "e.jsonl")
    record = msgspec.json.decode((tmp_path / "e.jsonl").read_bytes())
    assert record["x"] == "1970-01-01T00:00:01Z" and record["time"] == "1970-01-01T00:00:00Z"


def test_times_that_no_calendar_holds_are_written_as_integers(tmp_path: Path) -> None:
    batch = Batch.of([Event("T", "s", 1, INT_MAX)], [Topic("T")])
    for name in ("e.jsonl", "e.csv", "e.parquet"):
        write_events(batch, tmp_path / name)
        assert list(read_events(tmp_path / name).events()) == list(batch.events())


def test_the_columns_of_a_table_are_the_reserved_ones_and_the_attributes() -> None:
    table = to_arrow(one(1.5, Kind.FLOAT))
    assert table.column_names == ["topic", "source", "seq", "time", "id", "x"]
    assert table.schema.field("time").type == pa.timestamp("us", "UTC")


def test_numbers_that_are_no_json_are_refused_there_and_kept_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="event s:1 is nan") as caught:
        write_events(one(math.nan, Kind.FLOAT), tmp_path / "e.jsonl")
    assert "Parquet" in caught.value.hint and not list(tmp_path.iterdir())
    write_events(one(math.nan, Kind.FLOAT), tmp_path / "e.csv")
    (event,) = read_events(tmp_path / "e.csv").events()
    assert math.isnan(event.attributes["x"])  # type: ignore[arg-type]


def test_topics_that_differ_in_a_kind_fit_json_lines_but_no_table(tmp_path: Path) -> None:
    events = [Event("A", "s", 1, 0, {"x": 1}), Event("B", "s", 2, 0, {"x": "a"})]
    batch = Batch.of(events, [Topic("A", {"x": Kind.INT}), Topic("B", {"x": Kind.STRING})])
    with pytest.raises(UsageError, match="one kind") as caught:
        to_arrow(batch)
    assert "JSON Lines" in caught.value.hint
    write_events(batch, tmp_path / "e.jsonl")
    assert list(read_events(tmp_path / "e.jsonl").events()) == events


def test_topics_that_differ_as_numbers_do_share_a_column_of_floats() -> None:
    topics = [Topic("A", {"x": Kind.INT}), Topic("B", {"x": Kind.FLOAT})]
    events = [Event("A", "s", 1, 0, {"x": 1}), Event("B", "s", 2, 0, {"x": 0.5})]
    assert to_arrow(Batch.of(events, topics))["x"].to_pylist() == [1.0, 0.5]
    events[0] = Event("A", "s", 1, 0, {"x": 2**53 + 1})
    with pytest.raises(UsageError, match="one kind"):
        to_arrow(Batch.of(events, topics))


def test_an_attribute_with_the_name_of_a_reserved_column_is_refused(tmp_path: Path) -> None:
    for name in ("e.jsonl", "e.parquet"):
        with pytest.raises(UsageError, match="reserved column"):
            write_events(one("a", Kind.STRING, "id"), tmp_path / name)


def test_an_unknown_extension_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        write_events(one(1, Kind.INT), tmp_path / "e.txt")
    assert ".parquet" in caught.value.hint


# --- files that appear whole or not at all --------------------------------------------------------


def test_an_output_appears_at_the_end_with_its_extension_kept(tmp_path: Path) -> None:
    target = tmp_path / "e.csv"
    with atomic_output(target) as temporary:
        assert temporary.suffix == ".csv" and temporary.parent == tmp_path
        temporary.write_text("x")
        assert not target.exists()
    assert target.read_text() == "x" and list(tmp_path.iterdir()) == [target]


def test_an_interrupted_output_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), atomic_output(tmp_path / "e.csv") as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())


def test_an_existing_path_is_refused_unless_it_may_be_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "e.csv"
    target.write_text("old")
    with pytest.raises(UsageError, match="exists already"), atomic_output(target):
        pass
    with pytest.raises(UsageError, match="exists already"):
        refuse_existing(target)
    with atomic_output(target, overwrite=True) as temporary:
        temporary.write_text("new")
    assert target.read_text() == "new"


def test_a_file_that_appears_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "e.csv"
    with pytest.raises(UsageError, match="exists already"), atomic_output(target) as temporary:
        temporary.write_text("ours")
        target.write_text("theirs")
    assert target.read_text() == "theirs" and list(tmp_path.iterdir()) == [target]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"), atomic_output(tmp_path / "no" / "e"):
        pass
    with pytest.raises(UsageError, match="directory"), atomic_output(tmp_path, overwrite=True):
        pass


def test_a_full_disk_is_a_refusal_and_leaves_nothing(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pyarrow.parquet.write_table", full)
    with pytest.raises(UsageError, match="No space left"):
        write_events(one(1, Kind.INT), tmp_path / "e.parquet")
    assert not list(tmp_path.iterdir())


# --- descriptions ---------------------------------------------------------------------------------


def test_a_description_tells_topics_counts_kinds_and_the_range_of_times() -> None:
    rows = [
        {"topic": "Quote", "time": 1_000_000, "symbol": "A", "value": 1.5},
        {"topic": "Quote", "time": 0, "symbol": "B", "value": None},
        {"topic": "Tick", "time": 2_000_000},
    ]
    found = describe(read_events(rows))
    assert str(found) == (
        "3 events from 1 source\n"
        "time 1970-01-01T00:00:00Z to 1970-01-01T00:00:02Z\n"
        "Quote: 2 events\n"
        "  symbol  string\n"
        "  value   float\n"
        "Tick: 1 event"
    )
    assert msgspec.json.decode(msgspec.json.encode(found))["topics"][0]["count"] == 2
