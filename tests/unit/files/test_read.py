"""Reading: each format, each rule, each refusal with its words and its place."""

from __future__ import annotations

import gzip
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from concordant.errors import UsageError
from concordant.files import in_order, read_events
from concordant.files import jsonl as jsonl_module
from concordant.files import part as part_module
from concordant.model.event import Event
from concordant.model.kind import Kind

ROWS = [
    {"topic": "Quote", "source": "x", "seq": 1, "time": 5, "symbol": "A", "value": 1.5},
    {"topic": "Report", "source": "y", "seq": 1, "time": 4, "symbol": "B", "good": True},
]


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def lines(path: Path, *records: Any) -> Path:
    return write(path, "".join(json.dumps(record) + "\n" for record in records))


def refusal(*inputs: Any, **options: Any) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read_events(*inputs, **options)
    assert caught.value.hint, "every refusal says what to try"
    return caught.value


def events(*inputs: Any, **options: Any) -> list[Event]:
    return list(read_events(*inputs, **options).events())


EXPECTED = [
    Event("Quote", "x", 1, 5, {"symbol": "A", "value": 1.5}),
    Event("Report", "y", 1, 4, {"symbol": "B", "good": True}),
]


# --- forms of input -------------------------------------------------------------------------------


def test_json_lines_give_their_events_in_the_order_given(tmp_path: Path) -> None:
    for extension in ("jsonl", "ndjson", "json"):
        assert events(lines(tmp_path / f"e.{extension}", *ROWS)) == EXPECTED


def test_compressed_json_lines_and_csv_are_read(tmp_path: Path) -> None:
    text = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
    assert events(write(tmp_path / "e.jsonl.gz", gzip.compress(text))) == EXPECTED
    cells = gzip.compress(b"time,x\n1,2\n")
    assert events(write(tmp_path / "e.csv.gz", cells), topic="T")[0].attributes == {"x": 2}


def test_tables_of_every_kind_give_the_same_events(tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl

    table = pa.Table.from_pylist([{"good": None, "value": None, **row} for row in ROWS])
    pq.write_table(table, tmp_path / "e.parquet")
    for name in ("e.arrow", "e.feather"):
        with pa.ipc.new_file(tmp_path / name, table.schema) as writer:
            writer.write_table(table)
    with pa.ipc.new_stream(tmp_path / "stream.arrow", table.schema) as writer:
        writer.write_table(table)
    for form in (
        table,
        table.to_batches()[0],
        table.to_reader(),
        pl.from_arrow(table),
        pl.from_arrow(table).with_columns(pl.col("symbol").cast(pl.Categorical)),
        table.to_pandas().astype({"symbol": "category"}),
        pd.DataFrame(table.to_pandas()),
        tmp_path / "e.parquet",
        str(tmp_path / "e.arrow"),
        tmp_path / "e.feather",
        tmp_path / "stream.arrow",
    ):
        assert events(form) == EXPECTED, type(form)


def test_dicts_generators_and_event_objects_are_inputs() -> None:
    assert events(ROWS) == EXPECTED
    assert events(row for row in ROWS) == EXPECTED
    named = [Event("T", "s", 1, 7, {"n": 1}, "mine"), Event("T", "s", 2, 8)]
    assert events(named) == named
    assert read_events(EXPECTED).ids is None


def test_python_values_of_dicts_become_plain_values() -> None:
    row = {
        "time": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
        "at": np.datetime64("1970-01-01T00:00:02"),
        "n": np.int32(4),
        "d": Decimal("1.5"),
        "inner": {"deep": {"x": True}},
    }
    batch = read_events([row], topic="T")
    assert next(batch.events()) == Event(
        "T", "table", 1, 1_000_000, {"at": 2_000_000, "n": 4, "d": 1.5, "inner.deep.x": True}
    )
    assert batch.topics["T"].attributes["at"] is Kind.TIME


def test_a_topic_can_be_given_by_prefix_by_mapping_or_for_all(tmp_path: Path) -> None:
    path = lines(tmp_path / "e.jsonl", {"time": 1})
    assert events(f"Quote={path}")[0].topic == "Quote"
    assert events({"Quote": path})[0].topic == "Quote"
    assert events(path, topic="Quote")[0].topic == "Quote"
    both = events({"A": [{"time": 1}], "B": [{"time": 2}]})
    assert [(event.topic, event.id) for event in both] == [("A", "table1:1"), ("B", "table2:1")]


def test_a_path_that_contains_an_equals_sign_and_exists_is_a_path(tmp_path: Path) -> None:
    assert events(str(lines(tmp_path / "a=b.jsonl", *ROWS))) == EXPECTED


def test_other_columns_can_be_named_also_nested_ones() -> None:
    row = {"type": "T", "meta": {"at": 3, "host": "h", "x": 1}, "n": 9, "key": 77}
    (event,) = events(
        [row], time="meta.at", source="meta.host", seq="n", id="key", topic_column="type"
    )
    assert event == Event("T", "h", 9, 3, {"meta.x": 1}, "77")
    table = pa.Table.from_pylist([row])
    options = {"time": "meta.at", "source": "meta.host", "seq": "n", "topic_column": "type"}
    assert events(table, id="key", **options) == [event]


# --- defaults -------------------------------------------------------------------------------------


def test_source_is_the_path_and_seq_the_line(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("e.jsonl"), '\ufeff{"time": 1}\n\n  \r\n{"time": 2}')
    assert [event.id for event in events("./e.jsonl", topic="T")] == ["e.jsonl:1", "e.jsonl:4"]
    write(Path("e.csv"), "\ufefftime\n1\n2\n")
    assert [event.id for event in events("e.csv", topic="T")] == ["e.csv:2", "e.csv:3"]
    pq.write_table(pa.table({"time": [1]}), "e.parquet")
    assert [event.id for event in events("e.parquet", topic="T")] == ["e.parquet:1"]


def test_integers_as_source_and_id_become_text() -> None:
    row = {"topic": "T", "time": 1, "source": 7, "seq": 1, "id": 8}
    for form in ([row], pa.Table.from_pylist([row])):
        (event,) = events(form)
        assert (event.source, event.id) == ("7", "8")


def test_a_null_or_empty_id_is_source_and_seq() -> None:
    rows = [{"time": 1, "id": None}, {"time": 2, "id": ""}, {"time": 3, "id": "k"}]
    for form in (rows, pa.Table.from_pylist(rows)):
        assert [event.id for event in events(form, topic="T")] == ["table:1", "table:2", "k"]


# --- times and kinds ------------------------------------------------------------------------------


def test_times_without_a_zone_may_come_as_long_strings(tmp_path: Path) -> None:
    long = pa.table({"time": pa.array(["1970-01-01T00:00:01"], pa.large_string())})
    assert [event.time for event in events(long, topic="T")] == [1_000_000]
    rows = [{"time": "1970-01-01T00:00:01"}]
    assert [event.time for event in events(rows, topic="T")] == [1_000_000]


def test_times_are_microseconds_or_iso_text_in_any_form(tmp_path: Path) -> None:
    texts = ["1970-01-01T00:00:01Z", "1970-01-01 00:00:01", "1970-01-01T01:00:01+01:00"]
    rows = [{"time": text} for text in [*texts, 1_000_000, "19700101T000001"]]
    assert {event.time for event in events(rows, topic="T")} == {1_000_000}
    path = write(tmp_path / "e.csv", "time\n" + "\n".join([*texts, "1000000"]))
    assert {event.time for event in events(path, topic="T")} == {1_000_000}
    path = write(tmp_path / "f.csv", "time\n1970-01-02\n1970-01-02T00:00\n")
    assert {event.time for event in events(path, topic="T")} == {86_400_000_000}


@pytest.mark.parametrize(
    ("array", "value", "kind"),
    [
        (pa.array([True]), True, Kind.BOOL),
        (pa.array([3], pa.uint8()), 3, Kind.INT),
        (pa.array([2**63 - 1], pa.uint64()), 2**63 - 1, Kind.INT),
        (pa.array([1.5], pa.float16()), 1.5, Kind.FLOAT),
        (pa.array([1.5], pa.float32()), 1.5, Kind.FLOAT),
        (pa.array([Decimal(7)], pa.decimal128(9, 0)), 7, Kind.INT),
        (pa.array([Decimal(10) ** 20], pa.decimal128(30, 0)), 1e20, Kind.FLOAT),
        (pa.array([Decimal("1.25")]), 1.25, Kind.FLOAT),
        (pa.array(["a"], pa.large_string()), "a", Kind.STRING),
        (pa.array(["a"], pa.string_view()), "a", Kind.STRING),
        (pa.array(["a"]).dictionary_encode(), "a", Kind.STRING),
        (pa.array([4]).dictionary_encode(), 4, Kind.INT),
        (pa.array([2], pa.timestamp("s")), 2_000_000, Kind.TIME),
        (pa.array([2], pa.timestamp("ms", "Europe/Rome")), 2_000, Kind.TIME),
        (pa.array([2_000], pa.timestamp("ns")), 2, Kind.TIME),
        (pa.array([1], pa.date32()), 86_400_000_000, Kind.TIME),
        (pa.array([86_400_000], pa.date64()), 86_400_000_000, Kind.TIME),
    ],
)
def test_arrow_types_become_kinds(array: Any, value: Any, kind: Kind) -> None:
    two = pa.concat_arrays([array, pa.nulls(1, array.type)])
    batch = read_events(pa.table({"time": [1, 2], "a": two}), topic="T")
    assert batch.topics["T"].attributes == {"a": kind}
    assert [event.attributes for event in batch.events()] == [{"a": value}, {}]


def test_a_column_of_nulls_has_the_kind_null(tmp_path: Path) -> None:
    for form in (
        [{"time": 1, "a": None}],
        pa.table({"time": [1], "a": pa.nulls(1)}),
        write(tmp_path / "e.csv", "time,a\n1,\n"),
    ):
        assert read_events(form, topic="T").topics["T"].attributes == {"a": Kind.NULL}


def test_structs_become_dotted_names_and_their_nulls_go_down() -> None:
    table = pa.table({"time": [1, 2], "a": pa.array([{"b": {"c": 1}}, None])})
    assert [e.attributes for e in events(table, topic="T")] == [{"a.b.c": 1}, {}]


def test_in_json_a_topic_has_the_keys_of_its_rows_and_its_own_kinds() -> None:
    rows = [
        {"topic": "A", "time": 1, "x": 1, "s": "p"},
        {"topic": "B", "time": 2, "x": "text", "s": "q"},
        {"topic": "A", "time": 3, "x": 2.5, "s": None},
    ]
    batch = read_events(rows)
    assert batch.topics["A"].attributes == {"x": Kind.FLOAT, "s": Kind.STRING}
    assert batch.topics["B"].attributes == {"x": Kind.STRING, "s": Kind.STRING}
    assert [event.attributes for event in batch.events()] == [
        {"x": 1.0, "s": "p"},
        {"x": "text", "s": "q"},
        {"x": 2.5},
    ]
    assert set(batch.attributes) == {
        ("x", Kind.FLOAT),
        ("x", Kind.STRING),
        ("s", Kind.STRING),
    }


def test_strings_that_look_like_times_stay_strings_in_json() -> None:
    batch = read_events([{"time": 1, "at": "2026-01-01T00:00:00Z"}], topic="T")
    assert batch.topics["T"].attributes == {"at": Kind.STRING}


def test_csv_columns_get_the_narrowest_kind_of_all_their_cells(tmp_path: Path) -> None:
    path = write(
        tmp_path / "e.csv",
        "time,i,f,b,t,s,z\n"
        '1,+1,1,true,2026-01-01T00:00Z,"a,\nb",007\n'
        "2,,nan,False,,x,1\n"
        "3,-3,1e3,TRUE,2026-01-01 00:00:00.5,1,-0\n",
    )
    batch = read_events(path, topic="T")
    assert batch.topics["T"].attributes == {
        "i": Kind.INT,
        "f": Kind.FLOAT,
        "b": Kind.BOOL,
        "t": Kind.TIME,
        "s": Kind.STRING,
        "z": Kind.INT,
    }
    found = [event.attributes for event in batch.events()]
    assert found[0] | {"t": 0} == {"i": 1, "f": 1.0, "b": True, "t": 0, "s": "a,\nb", "z": 7}
    assert "i" not in found[1] and np.isnan(found[1]["f"])  # type: ignore[arg-type]
    assert found[2]["t"] - found[0]["t"] == 500_000  # type: ignore[operator]


def test_what_only_looks_like_a_time_in_csv_is_text(tmp_path: Path) -> None:
    path = write(tmp_path / "e.csv", "time,a,b\n1,2026-13-01T00:00Z,2026-01-01\n")
    attributes = read_events(path, topic="T").topics["T"].attributes
    assert attributes == {"a": Kind.STRING, "b": Kind.STRING}


def test_not_a_number_is_a_value_in_tables() -> None:
    table = pa.table({"time": [1], "f": [float("inf")]})
    assert events(table, topic="T")[0].attributes == {"f": float("inf")}


# --- several inputs -------------------------------------------------------------------------------


def test_inputs_are_joined_and_their_columns_merged() -> None:
    one = [{"topic": "A", "time": 1, "x": 1, "s": "p"}]
    two = pa.table({"topic": ["A", "B"], "time": [2, 3], "x": [1.5, None], "s": ["q", "p"]})
    three = [{"topic": "A", "time": 4, "x": None, "only": True}]
    batch = read_events(one, two, three)
    assert batch.topics["A"].attributes == {
        "x": Kind.FLOAT,
        "s": Kind.STRING,
        "only": Kind.BOOL,
    }
    assert [event.attributes for event in batch.events()] == [
        {"x": 1.0, "s": "p"},
        {"x": 1.5, "s": "q"},
        {"s": "p"},
        {"only": True},
    ]


def test_only_the_topic_that_needs_it_turns_from_int_to_float() -> None:
    one = [{"topic": "A", "time": 1, "x": 1}, {"topic": "B", "time": 2, "x": 2**60 + 1}]
    two = [{"topic": "A", "time": 3, "x": 0.5}]
    batch = read_events(one, two)
    assert batch.topics["B"].attributes == {"x": Kind.INT}
    assert [e.attributes["x"] for e in batch.events()] == [1.0, 2**60 + 1, 0.5]


def test_kinds_that_differ_between_inputs_are_refused_with_both_names() -> None:
    error = refusal([{"time": 1, "x": "a"}], [{"time": 1, "x": 1}], topic="T")
    assert error.place == "table2:x"
    assert "is int here and string in table1" in error.message


def test_an_integer_that_is_no_float_is_refused_between_inputs() -> None:
    error = refusal([{"time": 1, "x": 2**60 + 1}], [{"time": 1, "x": 0.5}], topic="T")
    assert error.place == "table1:1:x" and str(2**60 + 1) in error.message
    assert refusal([{"time": 1, "x": 2**63 - 1}], [{"time": 1, "x": 0.5}], topic="T")


def test_a_source_in_two_inputs_without_seq_is_refused_because_of_chance() -> None:
    error = refusal([{"time": 1, "source": "s"}], [{"time": 1, "source": "s"}], topic="T")
    assert "decided by chance" in error.message and "table1" in error.message
    assert "seq column" in error.hint


def test_a_file_given_twice_is_refused_by_whatever_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = lines(tmp_path / "e.jsonl", {"time": 1})
    assert "given twice; every" in refusal(path, path, topic="T").message
    (tmp_path / "link.jsonl").symlink_to(path)
    (tmp_path / "hard.jsonl").hardlink_to(path)
    monkeypatch.chdir(tmp_path)
    for other in ("e.jsonl", "./e.jsonl", "link.jsonl", "hard.jsonl", "Other=e.jsonl"):
        error = refusal(path, other, topic="T")
        assert f"given twice: it is the file {path}; every event" in error.message, other
    one = lines(tmp_path / "one.jsonl", {"time": 1, "source": "s", "seq": 1})
    assert "given twice" in refusal({"A": one, "B": one}).message


def test_repeated_source_and_seq_are_refused_with_both_places() -> None:
    one = [{"time": 1, "source": "s", "seq": 1}, {"time": 2, "source": "s", "seq": 2}]
    error = refusal(one, [{"time": 3, "source": "s", "seq": 2}], topic="T")
    assert error.place == "table2:1"
    assert "source 's' and seq 2 was already used at table1:2" in error.message


def test_repeated_ids_are_refused_with_both_places() -> None:
    error = refusal([{"time": 1, "id": "a"}, {"time": 2, "id": "a"}], topic="T")
    assert error.place == "table:2" and "id 'a' was already used at table:1" in error.message
    error = refusal([{"time": 1, "id": "table:2"}, {"time": 2}], topic="T")
    assert error.place == "table:2" and "already used at table:1" in error.message


# --- order ----------------------------------------------------------------------------------------


def test_events_are_sorted_by_time_then_source_then_seq() -> None:
    keys = [(2, "a", 1), (1, "b", 2), (1, "b", 1), (1, "a", 9)]
    rows = [{"topic": "T", "time": t, "source": s, "seq": n} for t, s, n in keys]
    batch = in_order(read_events(rows))
    assert [tuple(map(getattr, [e] * 3, ("time", "source", "seq"))) for e in batch.events()] == (
        sorted(keys)
    )
    assert in_order(batch) is batch


def test_ordered_inputs_are_checked_one_by_one_and_merged() -> None:
    one, two = [{"time": 1}, {"time": 3}], [{"time": 2}]
    batch = read_events(one, two, topic="T", ordered=True)
    assert [event.time for event in in_order(batch).events()] == [1, 2, 3]


def test_unordered_input_is_refused_with_the_row_and_its_predecessor(tmp_path: Path) -> None:
    path = lines(tmp_path / "e.jsonl", {"time": 2}, {"time": 1})
    error = refusal(path, topic="T", ordered=True)
    assert error.place == f"{path.as_posix()}:2"
    assert f"event {path}:2 stands after {path}:1" in error.message
    rows = [{"time": 1, "source": "b", "seq": 1}, {"time": 1, "source": "a", "seq": 1}]
    assert refusal(rows, topic="T", ordered=True).place == "table:2"


# --- refusals: reserved columns -------------------------------------------------------------------


@pytest.mark.parametrize("form", [list, pa.Table.from_pylist])
@pytest.mark.parametrize(
    ("row", "place", "words"),
    [
        ({"time": None}, "table:2:time", "the time is null or missing"),
        ({"time": 1, "source": None}, "table:2:source", "the source is null"),
        ({"time": 1, "source": ""}, "table:2:source", "the source is null"),
        ({"time": 1, "seq": None}, "table:2:seq", "the seq is null"),
        ({"time": 1, "topic": None}, "table:2:topic", "the topic is null"),
        ({"time": 1, "topic": ""}, "table:2:topic", "the topic is null"),
    ],
)
def test_a_null_in_a_reserved_column_is_refused(
    form: Any, row: dict[str, Any], place: str, words: str
) -> None:
    good = {"topic": "T", "time": 1, "source": "s", "seq": 1}
    error = refusal(form([good, {**good, "seq": 2, **row}]))
    assert (error.place, words in error.message) == (place, True)


@pytest.mark.parametrize("form", [list, pa.Table.from_pylist])
@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"time": 1.5}, "the time"),
        ({"time": True}, "the time"),
        ({"seq": 1.5}, "the seq"),
        ({"seq": "1"}, "the seq"),
        ({"source": 1.5}, "the source"),
        ({"id": True}, "the id"),
        ({"topic": 4}, "the topic"),
        ({"time": "yesterday"}, "is not a time"),
        ({"time": "0000-01-01T00:00:00Z"}, "is not a time"),
        ({"time": "2026-13-01T00:00:00Z"}, "is not a time"),
        ({"time": "2026-01-01T00:00:00.1234567Z"}, "finer than a microsecond"),
    ],
)
def test_reserved_columns_of_a_wrong_kind_are_refused(
    form: Any, row: dict[str, Any], words: str
) -> None:
    error = refusal(form([{"topic": "T", "time": 1, "source": "s", "seq": 1, **row}]))
    assert words in error.message
    assert error.place.endswith(f":{next(iter(row))}")


def test_integers_beyond_64_bits_are_refused_everywhere(tmp_path: Path) -> None:
    path = lines(tmp_path / "e.jsonl", {"time": 1, "x": 1}, {"time": 1, "x": 2**63})
    assert refusal(path, topic="T").place.endswith("e.jsonl:2:x")
    assert refusal([{"time": 2**64}], topic="T").place == "table:1:time"
    table = pa.table({"time": [1], "x": pa.array([2**63], pa.uint64())})
    assert refusal(table, topic="T").place == "table:1:x"
    path = write(tmp_path / "e.csv", f"time,x\n1,1\n\n2,{2**63}\n")
    assert refusal(path, topic="T").place.endswith("e.csv:4:x")
    path = write(tmp_path / "f.csv", f"time\n{10**50}\n")
    assert refusal(path, topic="T").place.endswith("f.csv:2:time")


def test_nanoseconds_that_would_be_lost_are_refused() -> None:
    table = pa.table({"time": pa.array([1_000, 1_001], pa.timestamp("ns"))})
    error = refusal(table, topic="T")
    assert error.place == "table:2:time" and "nanoseconds" in error.message
    table = pa.table({"time": pa.array([2**62], pa.timestamp("s"))})
    assert "does not fit" in refusal(table, topic="T").message


def test_a_missing_time_column_is_refused_with_the_columns_found(tmp_path: Path) -> None:
    for form in ([{"ts": 1}], pa.table({"ts": [1]}), write(tmp_path / "e.csv", "ts\n1\n")):
        error = refusal(form, topic="T")
        assert "no column 'time'" in error.message and "'ts'" in error.message
        assert "--time COLUMN" in error.hint


def test_a_column_asked_for_by_name_must_be_there() -> None:
    assert "no column 'host' for the source" in refusal([{"time": 1}], source="host").message


def test_a_missing_topic_is_refused_with_both_remedies() -> None:
    for form in ([{"time": 1}], pa.table({"time": [1]})):
        error = refusal(form)
        assert "Topic=" in error.hint and "--topic" in error.hint


def test_a_topic_for_an_input_that_has_the_column_is_refused() -> None:
    for form in ([{"time": 1, "topic": "A"}], pa.table({"time": [1], "topic": ["A"]})):
        assert "has a column 'topic' as well" in refusal({"B": form}).message
        assert events(form, topic="B")[0].topic == "A"


def test_an_attribute_with_a_reserved_name_is_refused() -> None:
    assert "reserved name" in refusal([{"time": 1, "position": 2}], topic="T").message
    assert refusal(pa.table({"ts": [1], "time": [2]}), topic="T", time="ts").place == "table:time"


# --- refusals: attributes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (1, "a", "is string here and int in line 1"),
        (1.5, True, "is bool here and float in line 1"),
        ({"y": 1}, 2, "is int here and object in line 1"),
    ],
)
def test_mixed_kinds_in_json_are_refused_with_both_lines(
    tmp_path: Path, first: Any, second: Any, words: str
) -> None:
    path = lines(tmp_path / "e.jsonl", {"time": 1, "x": first}, {"time": 2, "x": second})
    error = refusal(path, topic="T")
    assert error.place.endswith("e.jsonl:2:x") and words in error.message


def test_a_third_kind_among_numbers_is_the_one_refused() -> None:
    rows = [{"time": 1, "x": value} for value in (None, 1, 1.5, "a")]
    error = refusal(rows, topic="T")
    assert error.place == "table:4:x" and "is string here and int in line 2" in error.message


def test_an_integer_among_floats_that_is_no_float_is_refused() -> None:
    error = refusal([{"time": 1, "x": 0.5}, {"time": 2, "x": 2**53 + 1}], topic="T")
    assert error.place == "table:2:x" and "no float exactly" in error.message


def test_lists_and_other_types_are_refused_by_column() -> None:
    assert refusal([{"time": 1, "x": [1]}], topic="T").place == "table:1:x"
    for array in (pa.array([[1]]), pa.array([b"x"]), pa.array([1], pa.duration("s"))):
        error = refusal(pa.table({"time": [1], "x": array}), topic="T")
        assert error.place == "table:x" and "drop" in error.hint


def test_a_dotted_key_that_collides_with_a_nested_one_is_refused() -> None:
    error = refusal([{"time": 1, "a": {"b": 1}, "a.b": 2}], topic="T")
    assert error.place == "table:1:a.b" and "two columns 'a.b'" in error.message
    table = pa.table({"time": [1], "a": [{"b": 1}], "a.b": [2]})
    assert "two columns 'a.b'" in refusal(table, topic="T").message


def test_deep_nesting_is_refused() -> None:
    value: Any = 1
    for _ in range(20):
        value = {"a": value}
    assert "deeper than 16" in refusal([{"time": 1, "a": value}], topic="T").message
    table = pa.table({"time": [1], "a": [value]})
    assert "deeper than 16" in refusal(table, topic="T").message


def test_too_many_topics_are_refused(monkeypatch: Any) -> None:
    monkeypatch.setattr(part_module, "TOPIC_COUNT_MAX", 2)
    rows = [{"time": 1, "topic": str(n)} for n in range(3)]
    assert "3 topics" in refusal(rows).message


def test_text_that_is_no_unicode_is_refused() -> None:
    error = refusal([{"time": 1, "x": "a"}, {"time": 1, "x": "\ud800"}], topic="T")
    assert error.place == "table:2:x"


# --- refusals: files ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"time": NaN}', "not valid JSON"),
        (b'{"time": 1', "not valid JSON"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[1]", "not a JSON object"),
        (b'{"time":1,"x":' + b"9" * 5000 + b"}", "out of range"),
        (b'{"time":1,"x":1e999}', "out of range"),
        (b"[" * 100_000, "deeper than 16"),
        (b'{"time": 1, "time": 2}', "the key 'time' twice"),
        (b'{"time" :1,"a":{"x" : 1, "x": 2}}', "the key 'x' twice"),
        (b'{"time":1,"a":"\\":","time" :2}', "the key 'time' twice"),
    ],
)
def test_a_bad_line_of_json_is_refused_by_its_number(
    tmp_path: Path, line: bytes, words: str
) -> None:
    error = refusal(write(tmp_path / "e.jsonl", b'{"time": 1}\n\n' + line + b"\n"), topic="T")
    assert words in error.message and "e.jsonl:3" in error.place


def test_strings_that_look_like_keys_are_no_repeated_keys(tmp_path: Path) -> None:
    path = write(tmp_path / "e.jsonl", b'{"time" : 1, "a": "\\":x", "b": {"time": ":"}}')
    assert events(path, topic="T")[0].attributes == {"a": '":x', "b.time": ":"}


def test_a_line_beyond_the_bound_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(jsonl_module, "LINE_BYTES_MAX", 20)
    path = lines(tmp_path / "e.jsonl", {"time": 1, "x": "a" * 30})
    assert "longer than" in refusal(path, topic="T").message


def test_an_array_in_a_json_file_is_refused_with_a_remedy(tmp_path: Path) -> None:
    assert "jq" in refusal(write(tmp_path / "e.json", '[\n{"time": 1}\n]'), topic="T").hint
    assert "jq" in refusal(write(tmp_path / "f.json", '{\n"time": 1\n}'), topic="T").hint


@pytest.mark.parametrize(
    ("content", "place", "words"),
    [
        (b"time,a\n1,2\n3\n", "e.csv:3", "1 cells, and the header has 2"),
        (b'time,a\n1,"x\ny"\n\n3,4,5\n', "e.csv:5", "3 cells, and the header has 2"),
        (b"time,a\n1,\xff\n", "e.csv:2", "not UTF-8"),
        (b"time,a,a\n1,2,3\n", "e.csv:a", "twice"),
        (b"time\n1\nsoon\n", "e.csv:3:time", "'soon' is not a time"),
        (b"time\n1.5\n", "e.csv:2:time", "'1.5' is not a time"),
        (b"time,a\n,1\n", "e.csv:2:time", "the time is null"),
        (b"time,seq\n1,x\n", "e.csv:seq", "sequence numbers are integers"),
        (b'time,a\n1,2\n2,"x\n3,4\n', "e.csv:3", "a quote that is never closed"),
        (b"", "e.csv", "is empty"),
        (b"time,a\n", "e.csv", "is empty"),
    ],
)
def test_a_bad_csv_file_is_refused(tmp_path: Path, content: bytes, place: str, words: str) -> None:
    error = refusal(write(tmp_path / "e.csv", content), topic="T")
    assert words in error.message and error.place.endswith(place)


def test_empty_inputs_are_refused(tmp_path: Path) -> None:
    for name in ("e.jsonl", "e.parquet", "e.arrow"):
        assert "is empty" in refusal(write(tmp_path / name, ""), topic="T").message
    assert "is empty" in refusal([], topic="T").message
    assert "is empty" in refusal(pa.table({"time": pa.array([], pa.int64())}), topic="T").message
    assert "no input" in refusal().message


def test_damaged_files_are_refused_without_a_traceback_of_the_library(tmp_path: Path) -> None:
    pq.write_table(pa.table({"time": list(range(1000))}), tmp_path / "good.parquet")
    cut = (tmp_path / "good.parquet").read_bytes()[:-20]
    packed = gzip.compress(b'{"time": 1}\n' * 1000)
    for name, content in (
        ("e.parquet", cut),
        ("e.arrow", b"not arrow at all"),
        ("e.jsonl.gz", packed[:-12]),
        ("f.jsonl.gz", b"plain"),
    ):
        error = refusal(write(tmp_path / name, content), topic="T")
        assert "damaged" in error.message and len(error.message) < 400


def test_paths_that_are_no_files_of_events_are_refused(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.jsonl").message
    assert "no such file" in refusal("none").message
    for name in ("a\0b.jsonl", "a" * 5000 + ".jsonl", "T=" + "a" * 5000 + ".jsonl"):
        assert "no such file" in refusal(name).message
    assert "no such file" in refusal(write(tmp_path / "e.csv", "x") / "f.jsonl").message
    assert "directory" in refusal(tmp_path).message
    error = refusal(write(tmp_path / "e.txt", "x"))
    assert ".parquet" in error.hint and ".jsonl" in error.hint
    assert ".csv" in refusal(write(tmp_path / "e.parquet.gz", "x")).hint


def test_a_file_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: Any) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    path = lines(tmp_path / "e.jsonl", {"time": 1})
    monkeypatch.setattr(Path, "open", forbidden)
    assert "may not be read" in refusal(path).message


def test_things_that_hold_no_events_are_refused() -> None:
    assert "int is no input" in refusal(5).message
    assert "row is a int" in refusal([5]).message
    assert "all dicts, or all events" in refusal([{"time": 1}, EXPECTED[0]]).message
    assert "list of one dict" in refusal({"T": {"time": 1}}).hint
    assert "empty topic or path" in refusal("=x.jsonl").message
    assert "names of topics" in refusal({1: [{"time": 1}]}).message
    assert "two purposes" in refusal([{"time": 1}], source="time").message
    assert "not a string" in refusal([{"time": 1, 5: 1}], topic="T").message
    assert "have their own" in refusal({"T": EXPECTED}).message


def test_a_frame_with_a_mixed_column_is_refused_in_one_sentence() -> None:
    import pandas as pd

    frame = pd.DataFrame({"time": [1, 2], "x": pd.Series([1, "a"], dtype=object)})
    assert "cannot become an Arrow table" in refusal(frame, topic="T").message
    assert "cannot become an Arrow table" in refusal(frame["time"], topic="T").message


def test_a_named_index_of_a_frame_is_a_column() -> None:
    import pandas as pd

    frame = pd.DataFrame({"time": pd.to_datetime(["1970-01-01T00:00:01"]), "x": [1]})
    assert events(frame.set_index("time"), topic="T") == [
        Event("T", "table", 1, 1_000_000, {"x": 1})
    ]


def test_text_times_and_enums_of_polars_are_read() -> None:
    import polars as pl

    side = pl.Series(["buy"], dtype=pl.Enum(["sell", "buy"]))
    frame = pl.DataFrame({"time": ["1970-01-01T00:00:01Z"], "side": side})
    assert events(frame, topic="T") == [Event("T", "table", 1, 1_000_000, {"side": "buy"})]


def test_a_dictionary_with_nulls_or_repeated_strings_is_read_by_value() -> None:
    codes = pa.array([0, 1, 2])
    symbols = pa.DictionaryArray.from_arrays(codes, pa.array(["a", None, "a"]))
    batch = read_events(pa.table({"time": [1, 2, 3], "s": symbols}), topic="T")
    assert [event.attributes for event in batch.events()] == [{"s": "a"}, {}, {"s": "a"}]
    assert batch.attributes["s", Kind.STRING].dictionary == ("a",)


def test_a_topic_for_all_inputs_does_not_fill_holes_of_a_topic_column() -> None:
    error = refusal([{"time": 1, "topic": "A"}, {"time": 2}], topic="T")
    assert error.place == "table:2:topic"


def test_reading_and_writing_need_neither_pandas_nor_polars(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    # Arrow itself imports pandas where it is installed; here both are as good as not installed.
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name in ('pandas', 'polars'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from concordant.files import read_events, write_events\n"
        "batch = read_events([{'time': 1, 's': 'a', 'x': 1.5}], topic='T')\n"
        "for name in ('e.jsonl', 'e.csv', 'e.parquet', 'e.arrow'):\n"
        "    write_events(batch, name)\n"
        "    assert list(read_events(name).events()) == list(batch.events())\n"
    )
    path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path if entry)
    subprocess.run([sys.executable, "-c", code], check=True, cwd=tmp_path, env={"PYTHONPATH": path})


def test_broken_json_is_refused_with_line_and_column(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"topic": "A", "time": 1}\n{"topic": "A", "time": NaN}\n')
    with pytest.raises(UsageError) as refused:
        read_events(path)
    assert refused.value.place == f"{path.as_posix()}:2:24"


def test_arrow_reads_from_inputs_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow's threads let go of the input late. If it was a Python object, and Python was ending,
    the process aborted after its work was done (seen in 1 of 25 runs of `concordant correlate`)."""
    table = pa.table({"topic": ["A"], "time": [1]})
    pq.write_table(table, tmp_path / "a.parquet")
    write(tmp_path / "a.csv", "topic,time\nA,1\n")
    seen: list[object] = []

    def watched(read: Any) -> Any:
        def call(source: object, *args: Any, **kwargs: Any) -> Any:
            seen.append(source)
            return read(source, *args, **kwargs)

        return call

    monkeypatch.setattr("pyarrow.parquet.ParquetFile", watched(pq.ParquetFile))
    monkeypatch.setattr("pyarrow.csv.read_csv", watched(pyarrow.csv.read_csv))
    for name in ("a.parquet", "a.csv"):
        assert len(read_events(tmp_path / name)) == 1
    assert [type(source) for source in seen] == [pa.OSFile, pa.BufferReader]
