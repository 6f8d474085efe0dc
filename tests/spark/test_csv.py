"""CSV files read by the workers: every cell is what Spark's own reader makes of it."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from concordant.errors import UsageError
from concordant.spark import correlate, explain
from concordant.spark.csv import Layout, pieces, unfit
from concordant.spark.unchanged import looked_at
from tests.odd_csv import CELLS, compared, drawn_cell, odd_csv
from tests.spark.frames import collected


def _schema(types: list[str]) -> str:
    return ", ".join(f"c{number} {kind}" for number, kind in enumerate(types))


def _by_spark(spark: Any, path: Path, types: list[str], **options: Any) -> list[tuple[Any, ...]]:
    frame = spark.read.options(**options).schema(_schema(types)).csv(str(path))
    return [tuple(row) for row in frame.collect()]


def _by_us(path: Path, types: list[str], **options: Any) -> list[tuple[Any, ...]]:
    names = tuple(f"c{number}" for number in range(len(types)))
    layout = Layout(names, tuple(types), options.get("sep", ","), bool(options.get("header")))
    file = looked_at(str(path))
    assert not unfit(file, layout, names)
    found = []
    for piece in pieces(file, layout, names, row_count=7):
        found += [tuple(row.values()) for row in piece.to_pylist()]
    return found


def _comparable(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """NaN equals itself, and the two zeros differ."""
    return [tuple(repr(value) for value in row) for row in rows]


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_every_cell_is_what_spark_reads(spark: Any, tmp_path: Path, kind: str, end: str) -> None:
    separator = ";"
    lines = [f"{n};{cell};{cell}" for n, cell in enumerate(CELLS[kind]) if separator not in cell]
    path = tmp_path / "cells.csv"
    path.write_bytes(end.join(lines).encode())
    types = ["bigint", kind, kind]
    expected = _by_spark(spark, path, types, sep=separator)
    assert _comparable(_by_us(path, types, sep=separator)) == _comparable(expected)
    assert len(expected) == len(lines)


@pytest.mark.parametrize("seed", range(12))
def test_lines_of_any_length_are_what_spark_reads(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = Random(seed)
    monkeypatch.setattr("concordant.spark.unchanged.BLOCK", rng.choice([1, 99, 1 << 10]))
    separator = rng.choice([",", ";", "|", "\t"])
    types = [rng.choice(list(CELLS)) for _ in range(rng.randint(1, 6))]
    lines = []
    for _ in range(200):
        if rng.random() < 0.05:
            lines.append(rng.choice(["", " ", "\t", "  \t ", separator, separator * 2]))
            continue
        cells = [rng.choice(CELLS[kind]) for kind in types]
        cells = [cell.replace(separator, "") for cell in cells]
        if rng.random() < 0.1:
            cells = cells[: rng.randint(1, len(cells))]
        elif rng.random() < 0.1:
            cells += ["more"] * rng.randint(1, 3)
        lines.append(separator.join(cells))
    header = rng.random() < 0.5
    text = rng.choice(["\n", "\r\n"]).join(lines) + rng.choice(["", "\n", "\n\n"])
    (tmp_path / "lines.csv").write_bytes(text.encode())
    options = {"sep": separator, "header": header}
    expected = _by_spark(spark, tmp_path / "lines.csv", types, **options)
    assert _comparable(_by_us(tmp_path / "lines.csv", types, **options)) == _comparable(expected)
    assert len(expected) > 100


@pytest.mark.parametrize("seed", range(8))
def test_cells_of_any_characters_are_what_spark_reads(
    spark: Any, tmp_path: Path, seed: int
) -> None:
    """Found by it: a tab behind a number, a minus zero in a form of its own, and the long s."""
    rng = Random(seed)
    separator = rng.choice([",", ";", "|", "\t"])
    types = list(CELLS)
    lines = []
    for _ in range(1_000):
        cells = [drawn_cell(rng, kind).replace(separator, "") for kind in types]
        lines.append(separator.join(cells))
    path = tmp_path / "cells.csv"
    path.write_bytes(rng.choice(["\n", "\r\n"]).join(lines).encode())
    expected = _by_spark(spark, path, types, sep=separator)
    assert _comparable(_by_us(path, types, sep=separator)) == _comparable(expected)


def test_readers_of_every_kind_and_odd_files_give_the_same(spark: Any, tmp_path: Path) -> None:
    """A few of the cases of the campaign `spark-files`."""
    by_workers = rows = 0
    for seed in range(40):
        case = odd_csv(Random(seed), tmp_path)
        reason, count, different = compared(spark, case)
        assert not different, (seed, case, different[:3])
        by_workers, rows = by_workers + (not reason), rows + count
    assert by_workers > 10 and rows > 200


def test_reals_of_up_to_fifteen_digits_are_exact(tmp_path: Path) -> None:
    rng = Random(1)
    texts = []
    for _ in range(20_000):
        digits = str(rng.randrange(10 ** rng.randint(1, 17)))
        point = rng.randint(1, len(digits))
        texts.append(f"{rng.choice(['', '-'])}{digits[:point]}.{digits[point:] or '0'}")
    (tmp_path / "reals.csv").write_text("\n".join(texts))
    found = [row[0] for row in _by_us(tmp_path / "reals.csv", ["double"])]
    assert [value.hex() for value in found] == [float(text).hex() for text in texts]
    assert not any(math.isnan(value) for value in found)


def test_numbers_of_many_digits_are_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by itself, they took eighty times as long as those of few digits."""

    def fails(*cell: Any) -> None:
        raise AssertionError(cell)

    monkeypatch.setattr("concordant.spark.csv._Cells._read_odd", fails)
    rng = Random(2)
    reals = [
        repr(rng.choice([1, -1]) * rng.random() * 10.0 ** rng.randint(-90, 90))
        for _ in range(2_000)
    ]
    reals += ["-0.0000000000000000", "9007199254740993", "9007199254740992.5", "1e-05", "1.5E7"]
    reals += ["0.21231661622938147", "-12345678901234567890", "00000000000000000000000000001.5"]
    wholes = [rng.choice(["", "-"]) + str(rng.randrange(10**18, 2**63)) for _ in reals]
    wholes[:2] = [str(2**63 - 1), f"-{2**63 - 1}"]
    path = tmp_path / "numbers.csv"
    path.write_text("\n".join(map(",".join, zip(wholes, reals, strict=True))))
    found = _by_us(path, ["bigint", "double"])
    expected = [(int(n), float(x)) for n, x in zip(wholes, reals, strict=True)]
    assert _comparable(found) == _comparable(expected)


def test_files_that_cannot_just_be_cut_are_left_to_spark(tmp_path: Path) -> None:
    for name, data, reason in [
        ("quoted.csv", b'1,"a"\n', "has quotes"),
        ("late.csv", b"1234567890,\n" * 9 + b'"', "has quotes"),
        ("zero.csv", b"1,a\0b\n", "has quotes"),
        ("mac.csv", b"1,a\r2,b\r", "carriage returns"),
        ("stray.csv", b"1,a\r\r\n", "carriage returns"),
        ("latin.csv", "1,ä\n".encode("latin-1"), "is no plain UTF-8"),
        ("cut.csv", "1,ä".encode()[:-1], "is no plain UTF-8"),
        ("mark.csv", b"\xef\xbb\xbf1,a\n", "is no plain UTF-8"),
        ("packed.csv.gz", b"1,a\n", "may be compressed"),
        ("wide.csv", b"1,a\n" + b"," * 20_481 + b"\n", "has lines of more than 20,480 bytes"),
    ]:
        (tmp_path / name).write_bytes(data)
        assert reason in unfit(looked_at(str(tmp_path / name)), Layout((), ()), ()), name
    (tmp_path / "empty.csv").write_bytes(b"")
    assert _by_us(tmp_path / "empty.csv", ["bigint"]) == []


def _listed(text: str) -> list[str]:
    return text.split("|")


TIMES = _listed(
    "2026-03-02T09:00:00Z|2026-03-02 09:00:00Z|1969-12-31T23:59:59.999999Z|"
    "1970-01-01T00:00:00Z|2000-02-29T12:34:56.7Z|2024-02-29 23:59:59.12Z|0001-01-01T00:00:00Z|"
    "9999-12-31T23:59:59.999999Z|1900-02-28T00:00:00Z|2026-03-02T09:00:00+01:00|"
    "2026-03-02T09:00:00.000001-11:30|1582-10-10T00:00:00Z|2026-12-31T23:00:00-02:00|"
    "2026-04-30T00:00:00Z|2026-07-31T00:00:00Z|2026-08-31T00:00:00Z|2026-09-30T00:00:00Z"
)
ZONELESS = _listed("2026-03-02T09:00:00|2026-03-02 09:00:00.25|2026-11-30T23:59:59.5")
UNLIKE = _listed(
    "2026-03-02|2026-03-02T09:00Z|2026-3-2T09:00:00Z|2026-02-29T00:00:00Z|now|7|"
    "2026-13-01T00:00:00Z|2026-04-31T00:00:00Z|2026-03-02T24:00:00Z|2026-03-02T09:60:00Z|"
    "2026-03-02T09:00:00.Z|2026-03-02T09:00:00.1234567Z|2026-03-02T09:00:00 Z|T09:00:00|"
    "2026-03-02T09:00:00+1:00|2026-03-02T09:00:00+19:00|2026-03-02T09:00:00Europe/Berlin|"
    "0000-01-01T00:00:00Z|2026-03-02T09:00:00z| 2026-03-02T09:00:00Z|2026-03-02t09:00:00Z"
)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize("kind", ["timestamp", "string"])
def test_times_as_text_are_the_instants_that_spark_reads(
    spark: Any, tmp_path: Path, kind: str, zone: str
) -> None:
    known = [*TIMES, *(ZONELESS if kind == "string" or zone == "UTC" else [])]
    lines = [f"A,x,{n},{cell},{cell}" for n, cell in enumerate(known)]
    path = tmp_path / "times.csv"
    path.write_text("\n".join(lines))
    schema = f"topic string, source string, seq bigint, time {kind}, when {kind}"
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        frame = spark.read.schema(schema).csv(str(path))
        when = "unix_micros(A.when)" if kind == "timestamp" else "A.when"
        shown = {}
        for scan in ("jvm", "worker"):
            found = correlate(frame, "A", scan=scan, attributes="*")
            rows = found.selectExpr("A.seq", "unix_micros(at)", "unix_micros(A.time)", when)
            shown[scan] = sorted(tuple(row) for row in rows.collect())
        assert shown["worker"] == shown["jvm"]
        assert len(shown["jvm"]) == len(known)
        for cell in [*UNLIKE, *ZONELESS] if len(known) == len(TIMES) else UNLIKE:
            path.write_text("\n".join([*lines, f"A,x,99,{cell},"]))
            frame = spark.read.schema(schema).csv(str(path))
            assert "has times in 'time' unlike" in explain(frame, "A"), cell
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


SCHEMA = "topic string, source string, seq bigint, time bigint, k string, v double"
QUESTION = (
    "one: A then B partition by k\ntwo: A[1].v < A[2].v\nthree: B then A partition by source, k"
)


def _events(folder: Path, *, header: bool = False) -> Path:
    rng = Random(3)
    for part in range(2):
        lines = ["topic,source,seq,time,k,v"] if header else []
        for number in range(150):
            source = rng.choice(["x", "y"])
            cells = [rng.choice("ABC"), source, 2 * number + part, rng.randrange(100)]
            lines.append(",".join(map(str, [*cells, rng.choice(["p", "q", "ä", ""]), number % 7])))
        (folder / f"{part}.csv").write_text("\n".join(lines))
    return folder


@pytest.mark.parametrize("header", [False, True])
def test_relations_are_the_same_whoever_reads(spark: Any, tmp_path: Path, header: bool) -> None:
    folder = _events(tmp_path, header=header)
    frame = spark.read.schema(SCHEMA).option("header", header).csv(str(folder))
    for question in (QUESTION, "A then B partition by k", "A then C"):
        assert "read by the workers" in explain(frame, question)
        by_spark = collected(correlate(frame, question, scan="jvm"))
        assert collected(correlate(frame, question, scan="worker")) == by_spark
        assert len(by_spark) > 10


def test_rows_that_cannot_be_events_are_told_alike(spark: Any, tmp_path: Path) -> None:
    from concordant.spark.asked import ask

    lines = ["A,x,1,1", "B,x,2,2", ",x,3,3", "A,,5,5", "A,x,no,7", "A,x,8,never", "A,x", "Z,y,9,9"]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    frame = spark.read.schema("topic string, source string, seq bigint, time bigint")
    written = frame.csv(str(tmp_path / "rows.csv"))
    told = {}
    for scan in ("jvm", "worker"):
        answers = ask(written, "A then B", bad="skip").answers(scan).toArrow().to_pylist()
        told[scan] = sorted(str(row) for row in answers if row["what"] != "counts")
    assert told["worker"] == told["jvm"]
    assert sum("'what': 'bad'" in row for row in told["worker"]) == 5


def test_the_reason_why_spark_reads_can_be_read(spark: Any, tmp_path: Path) -> None:
    folder = _events(tmp_path)

    def reason(schema: str = SCHEMA, **options: Any) -> str:
        return explain(spark.read.options(**options).schema(schema).csv(str(folder)), "A then B")

    assert "with the option mode" in reason(mode="DROPMALFORMED")
    assert "read by the workers" in reason(mode="PERMISSIVE", multiLine=False, quote='"')
    assert "its separator is 'x'" in reason(sep="x")
    assert "its headers are to be checked" in reason(enforceSchema=False)
    assert "Spark keeps rows that cannot be read" in reason(f"{SCHEMA}, _corrupt_record string")
    for kind in ("timestamp", "string"):
        assert "has times in 'time' unlike" in reason(SCHEMA.replace("time bigint", f"time {kind}"))
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    try:
        reasons = reason(SCHEMA.replace("time bigint", "time timestamp"))
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")
    assert "reads times in the way of its versions before 3" in reasons
    assert "has the type date" in reason(SCHEMA.replace("time bigint", "time date"))
    (folder / "2.csv").write_text('"A",x,1,1,p,1')
    assert "2.csv has quotes" in reason()


def test_a_file_that_changes_before_it_is_read_is_refused(spark: Any, tmp_path: Path) -> None:
    folder = _events(tmp_path)
    found = correlate(spark.read.schema(SCHEMA).csv(str(folder)), "A then B", scan="worker")
    with (folder / "1.csv").open("a") as file:
        file.write('\nA,x,1000,1000,"p",1')
    from concordant.spark.session import explained

    with pytest.raises(Exception, match="has changed") as raised:
        found.collect()
    told = explained(raised.value)
    assert isinstance(told, UsageError) and "make the DataFrame anew" in told.hint


def test_of_lines_that_are_not_chosen_nothing_else_is_read(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(f"{n},{n % 3},{n / 4}" for n in range(100)))
    layout = Layout(("a", "b", "c"), ("bigint", "string", "double"))
    file = looked_at(str(path))
    seen = 0

    def chosen(table: Any, count: int) -> Any:
        nonlocal seen
        assert table.column_names == ["b"]
        assert table.num_rows == count
        seen += count
        return pa.compute.equal(table.column("b").cast(pa.string()), "1").to_numpy()

    found = pieces(file, layout, ["c", "a"], row_count=9, by=["b"], chosen=chosen)
    rows = [row for piece in found for row in piece.to_pylist()]
    assert rows == [{"c": n / 4, "a": n} for n in range(100) if n % 3 == 1]
    assert seen == 100
