"""Bad input: exit code 2, one message with the place, nothing printed, no file left or touched.

Every case is a command in a folder with a few files. The same messages can be read, and reviewed,
in tests/scenarios/bad-input.txt.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.cli.conftest import Done, Run

GOOD = b'{"topic": "A", "source": "s", "seq": 1, "time": 1, "x": 1}\n'
QUESTION = "A.x > 0"


def lines(*records: str) -> bytes:
    return "".join(f"{record}\n" for record in records).encode()


def parquet() -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table({"topic": ["A"], "time": [1], "x": [1]}), stream)
    return stream.getvalue()


class Case(NamedTuple):
    """A folder, a command in it, where the error stands and what it says."""

    place: str
    says: str
    sub: str = QUESTION
    files: dict[str, bytes] = {}  # noqa: RUF012 - never changed
    events: tuple[str, ...] = ("e.jsonl",)
    options: tuple[str, ...] = ()


EXPLODING = " and ".join(f"(A.x = {i} or A.y = {i})" for i in range(40))
CIRCLE = b"one: A and Y emit X(v = A.x)\ntwo: X emit Y(v = X.v)\n"

CASES = {
    # --- the subscription ---
    "malformed text": Case("1:7", "found '>', expected a value", "A.x > > 1"),
    "malformed file": Case(
        "q.sub:3:3", "found 'wihtin'", "q.sub", {"q.sub": b"q:\n  A\n  wihtin 5 min\n"}
    ),
    "empty text": Case("1:1", "the text holds no subscription", ""),
    "thousands of parentheses": Case(
        "1:101", "nested more than 100 deep", "(" * 5_000 + "A.x > 1" + ")" * 5_000
    ),
    "exploding normal form": Case("1:2", "more than 256 conjunctions", EXPLODING),
    "unknown topic": Case("", "'Nope'", "Nope.x > 1"),
    "unknown topic of a file": Case("q.sub", "'Nope'", "q.sub", {"q.sub": b"Nope.x > 1"}),
    "unknown attribute": Case("", "'nope'", "A.nope > 1"),
    "integer beyond 64 bits in the text": Case("1:7", "64", "A.x > 99999999999999999999"),
    "missing subscription file": Case("no.sub", "there is no such subscription file", "no.sub"),
    "subscription file not UTF-8": Case(
        "q.sub:2", "not UTF-8", "q.sub", {"q.sub": b"# ok\nA.x > 0 # \xe9\n"}
    ),
    "circle of emissions": Case("q.sub", "in a circle", "q.sub", {"q.sub": CIRCLE}),
    "derived topic in the events": Case("", "a topic of the input", "A emit A(v = A.x)"),
    "bad matching policy": Case("", "'best' is not a matching policy", options=("--match", "best")),
    "bad consumption policy": Case(
        "", "'all' is not a consumption policy", options=("--consume", "all")
    ),
    # --- events ---
    "no topic column": Case(
        "e.jsonl", "there is no topic", files={"e.jsonl": lines('{"time": 1, "x": 1}')}
    ),
    "no time column": Case(
        "e.jsonl", "no column 'time'", files={"e.jsonl": lines('{"topic": "A", "x": 1}')}
    ),
    "mixed types": Case(
        "e.jsonl:2:x",
        "is string here and int in line 1",
        files={
            "e.jsonl": lines(
                '{"topic": "A", "time": 1, "x": 1}', '{"topic": "A", "time": 2, "x": "1"}'
            )
        },
    ),
    "null time": Case(
        "e.jsonl:1:time", "null", files={"e.jsonl": lines('{"topic": "A", "time": null, "x": 1}')}
    ),
    "null topic": Case(
        "e.jsonl:2:topic",
        "null",
        files={"e.jsonl": GOOD + lines('{"topic": null, "source": "s", "seq": 2, "time": 2}')},
    ),
    "null source": Case(
        "e.jsonl:2:source",
        "null",
        files={"e.jsonl": GOOD + lines('{"topic": "A", "source": null, "seq": 2, "time": 2}')},
    ),
    "null seq": Case(
        "e.jsonl:2:seq",
        "null",
        files={"e.jsonl": GOOD + lines('{"topic": "A", "source": "s", "seq": null, "time": 2}')},
    ),
    "NaN in JSON": Case(
        "e.jsonl:1:32",
        "not valid JSON",
        files={"e.jsonl": lines('{"topic": "A", "time": 1, "x": NaN}')},
    ),
    "integer beyond 64 bits in JSON": Case(
        "e.jsonl:1:x",
        "beyond 64",
        files={"e.jsonl": lines('{"topic": "A", "time": 1, "x": 9223372036854775808}')},
    ),
    "integer beyond 64 bits in CSV": Case(
        "e.csv:2:x",
        "beyond 64",
        files={"e.csv": b"topic,time,x\nA,1,9223372036854775808\n"},
        events=("e.csv",),
    ),
    "repeated source and seq": Case(
        "e.jsonl:2", "already used at e.jsonl:1", files={"e.jsonl": GOOD + GOOD}
    ),
    "not ordered": Case(
        "e.jsonl:2",
        "belongs before",
        files={"e.jsonl": lines('{"topic": "A", "time": 2}', '{"topic": "A", "time": 1}')},
        options=("--ordered",),
    ),
    "empty JSON Lines": Case("e.jsonl", "it is empty", files={"e.jsonl": b""}),
    "empty CSV": Case("e.csv", "it is empty", files={"e.csv": b""}, events=("e.csv",)),
    "empty Parquet": Case(
        "e.parquet", "it is empty", files={"e.parquet": b""}, events=("e.parquet",)
    ),
    "not UTF-8": Case(
        "e.jsonl:2",
        "not UTF-8",
        files={"e.jsonl": GOOD + b'{"topic": "A", "time": 2, "x": "\xe9"}\n'},
    ),
    "cut off JSON": Case(
        "e.jsonl:2", "not valid JSON", files={"e.jsonl": GOOD + b'{"topic": "A", "ti'}
    ),
    "truncated Parquet": Case(
        "e.parquet",
        "damaged, cut off or of another format",
        files={"e.parquet": parquet()[:-20]},
        events=("e.parquet",),
    ),
    "wrong cell count": Case(
        "e.csv:3",
        "has 4 cells, and the header has 3",
        files={"e.csv": b"topic,time,x\nA,1,1\nA,2,2,2\n"},
        events=("e.csv",),
    ),
    "missing input file": Case("no.jsonl", "there is no such file", events=("no.jsonl",)),
    "missing file of a topic": Case("no.csv", "there is no such file", events=("A=no.csv",)),
    "directory as input": Case("folder", "it is a directory", events=("folder",)),
    "unknown extension": Case("e.txt", "the extension", files={"e.txt": b"x"}, events=("e.txt",)),
}


def prepare(case: Case, folder: Path) -> list[str]:
    """Write the case's files, and the command's arguments, with an output that must not appear."""
    (folder / "folder").mkdir()
    for name, content in {"e.jsonl": GOOD, **case.files}.items():
        (folder / name).write_bytes(content)
    # After `--` nothing is an option, so an empty text or one that begins with '-' is a text.
    return ["correlate", *case.options, "--out", "out.jsonl", "--", case.sub, *case.events]


def assert_refused(done: Done, place: str, says: str) -> None:
    assert done.code == 2, done
    assert done.out == ""
    assert "Traceback" not in done.err
    assert done.err.startswith(f"error: {place}: " if place else "error: ")
    assert says in done.err
    assert done.err.count("error:") == 1
    # Every refusal says what to try, unless it already says what was expected.
    assert done.err.count("  try: ") == 1 or ", expected " in done.err


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_bad_input_is_refused_in_one_message(case: Case, run: Run, tmp_path: Path) -> None:
    arguments = prepare(case, tmp_path)
    before = sorted(tmp_path.iterdir())
    assert_refused(run(*arguments), case.place, case.says)
    assert sorted(tmp_path.iterdir()) == before, "no output and no temporary file"


@pytest.mark.parametrize("name", ["thousands of parentheses", "truncated Parquet", "not UTF-8"])
def test_a_real_process_refuses_it_too(name: str, spawn: Run, tmp_path: Path) -> None:
    case = CASES[name]
    assert_refused(spawn(*prepare(case, tmp_path)), case.place, case.says)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_with_json_the_message_is_json(case: Case, run: Run, tmp_path: Path) -> None:
    done = run(*prepare(case._replace(options=(*case.options, "--json")), tmp_path))
    error = json.loads(done.err)["error"]
    assert (done.code, done.out, error["place"]) == (2, "", case.place)
    assert case.says in error["message"]
    assert error["hint"] or ", expected " in error["message"]


def test_wrong_arguments_are_bad_usage_in_both_forms(run: Run) -> None:
    done = run("correlate", "A")
    assert_refused(done, "", "Missing argument 'EVENTS")
    assert "concordant correlate --help" in done.err
    assert "--engin" in run("correlate", "A", "e.jsonl", "--engin", "local").err
    assert run("correlate", "A", "e.jsonl", "--engine", "spork").code == 2
    assert run("bogus").code == 2
    done = run("explain", "A", "e.jsonl", "--json")
    assert (done.code, done.out) == (2, "")
    assert "--event" in json.loads(done.err)["error"]["message"]


# --- the output -----------------------------------------------------------------------------------


def test_an_existing_output_is_refused_before_the_events_are_read(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("precious\n")
    done = run("correlate", QUESTION, "missing.jsonl", "--out", "out.jsonl")
    assert_refused(done, "out.jsonl", "exists already")
    assert "--force" in done.err
    assert (tmp_path / "out.jsonl").read_text() == "precious\n"


def test_force_replaces_an_output_but_only_by_a_whole_one(run: Run, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_bytes(GOOD)
    (tmp_path / "out.jsonl").write_text("precious\n")
    assert run("correlate", "A.y > 0", "e.jsonl", "--out", "out.jsonl", "--force").code == 2
    assert (tmp_path / "out.jsonl").read_text() == "precious\n"
    assert run("correlate", QUESTION, "e.jsonl", "--out", "out.jsonl", "--force").code == 0
    assert json.loads((tmp_path / "out.jsonl").read_text())["events"] == ["s:1"]


@pytest.mark.parametrize(
    ("out", "says"),
    [
        ("missing/out.jsonl", "its directory does not exist"),
        ("out.xlsx", "cannot be written as '.xlsx'"),
        ("out", "no extension"),
        ("folder.jsonl", "it is a directory"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_first(
    out: str, says: str, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "folder.jsonl").mkdir()
    done = run("correlate", QUESTION, "missing.jsonl", "--out", out)
    assert_refused(done, out, says)
    assert [path.name for path in tmp_path.iterdir()] == ["folder.jsonl"]


# --- values that look bad and are not -------------------------------------------------------------


def test_null_and_missing_values_are_accepted_and_make_predicates_false(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "e.jsonl").write_bytes(
        lines(
            '{"topic": "A", "time": 1, "x": null}',
            '{"topic": "A", "time": 2}',
            '{"topic": "A", "time": 3, "x": 5}',
        )
    )
    done = run("correlate", "A.x != 4", "e.jsonl")
    assert (done.code, done.err) == (0, "")
    assert [json.loads(line)["events"] for line in done.out.splitlines()] == [["e.jsonl:3"]]


def test_nan_is_accepted_in_tables_and_false_and_infinity_compares(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "e.csv").write_bytes(b"topic,time,x\nA,1,nan\nA,2,inf\nA,3,-inf\nA,4,1.5\n")
    found = [
        json.loads(line)["events"][0]
        for line in run("correlate", "A.x > 1", "e.csv").out.splitlines()
    ]
    assert found == ["e.csv:3", "e.csv:5"]
    assert len(run("correlate", "A.x != 7", "e.csv").out.splitlines()) == 3, "NaN is not != 7"


def test_an_infinite_partition_value_is_not_written_as_null(run: Run, tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_bytes(b"topic,time,x\nA,1,inf\nA,2,-inf\nA,3,\n")
    done = run("correlate", "A partition by x", "e.csv")
    assert [json.loads(line)["key"] for line in done.out.splitlines()] == [
        ["inf"],
        ["-inf"],
        [None],
    ]
