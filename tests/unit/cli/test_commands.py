"""Commands as a person meets them: help, results, a terminal, a reader that leaves, Ctrl-C."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from concordant.cli import doctor as doctor_module
from concordant.cli.app import app
from concordant.correlate.kernel import Kernel
from tests.unit.cli.conftest import COMMAND, ENVIRONMENT, Run

CASH = '{{"topic": "A", "source": "s", "seq": {0}, "time": {0}, "x": {0}}}\n'


def events(folder: Path, count: int) -> None:
    lines = "".join(CASH.format(number) for number in range(1, count + 1))
    (folder / "e.jsonl").write_text(lines)


# --- help -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_the_help_names_every_command_and_the_exit_codes(
    arguments: tuple[str, ...], run: Run
) -> None:
    done = run(*arguments)
    assert (done.code, done.err) == (0, "")
    for word in ("correlate", "explain", "doctor", "130 interrupted"):
        assert word in done.out


@pytest.mark.parametrize("command", ["correlate", "explain", "doctor"])
def test_every_option_of_a_command_is_explained(command: str, run: Run) -> None:
    text = run(command, "--help").out
    options = text.partition("Options:")[2]
    names = re.findall(r"^  (?:-\w, )?(--[\w-]+)", options, re.MULTILINE)
    assert "--json" in names
    for name in names:
        assert re.search(rf"{name}(?: \S+)?\s+[A-Z]\w+ ", options), name


def test_a_command_can_be_run_by_typers_own_runner(tmp_path: Path) -> None:
    events(tmp_path, 1)
    path = str(tmp_path / "e.jsonl")
    assert CliRunner().invoke(app, ["correlate", "A", path]).exit_code == 0
    assert CliRunner().invoke(app, ["correlate", "B", path]).exit_code == 2


def test_the_version_is_one_line(run: Run) -> None:
    done = run("--version")
    assert done.code == 0
    assert re.fullmatch(r"concordant \S.*\n", done.out)


# --- correlate ------------------------------------------------------------------------------------


def test_a_subscription_is_a_file_if_one_exists_and_text_otherwise(
    run: Run, tmp_path: Path
) -> None:
    events(tmp_path, 2)
    (tmp_path / "question").write_text("A.x = 2")
    found = [json.loads(run("correlate", sub, "e.jsonl").out) for sub in ("question", "A.x = 2")]
    assert [one["subscription"] for one in found] == ["question", "subscription"]
    assert [one["events"] for one in found] == [["s:2"], ["s:2"]]


@pytest.mark.parametrize(
    ("word", "code"), [("first", "FR"), ("recent", "MR"), ("first contiguous", "FRC")]
)
@pytest.mark.parametrize(
    ("consume", "short"), [("prefix", "PI"), ("matched", "I"), ("suffix", "IP"), ("slide", "FP")]
)
def test_words_and_codes_of_policies_mean_the_same(
    word: str, code: str, consume: str, short: str, run: Run, tmp_path: Path
) -> None:
    events(tmp_path, 9)
    command = ("correlate", "A[1].x < A[3].x", "e.jsonl")
    by_words = run(*command, "--match", word, "--consume", consume)
    assert by_words.out
    assert by_words == run(*command, "--match", code, "--consume", short)


def test_a_policy_of_the_command_replaces_only_its_own_half(run: Run, tmp_path: Path) -> None:
    events(tmp_path, 4)
    text = "A[1].x < A[2].x match recent consume slide"
    assert run("correlate", text, "e.jsonl", "--match", "recent").out.count("\n") == 3
    assert run("correlate", text, "e.jsonl", "--consume", "prefix").out.count("\n") == 2


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet", "out.arrow"])
def test_relations_are_written_by_extension(name: str, run: Run, tmp_path: Path) -> None:
    events(tmp_path, 3)
    done = run("correlate", "A partition by x", "e.jsonl", "--out", name)
    assert (done.code, done.out, done.err) == (0, "", "")
    if name.endswith(".parquet"):
        table = pq.read_table(tmp_path / name)
        assert table.column("events").to_pylist() == [["s:1"], ["s:2"], ["s:3"]]
        assert table.column("key").to_pylist() == [["1"], ["2"], ["3"]]
    assert (tmp_path / name).stat().st_size > 0


def test_dropped_events_are_a_warning(run: Run, tmp_path: Path) -> None:
    events(tmp_path, 9)
    command = ("correlate", "A[1].x > A[2].x cap 2", "e.jsonl")
    assert run(*command).err.startswith("warning: 7 queued events were dropped by a cap")
    assert "7 queued" in json.loads(run(*command, "--json").err)["warning"]
    assert run(*command, "--quiet").err == ""


def test_a_bug_of_ours_is_one_message_and_the_run_failed(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TypeError("oops")

    events(tmp_path, 1)
    monkeypatch.setattr("concordant.cli.correlate.correlate_batch", broken)
    done = run("correlate", "A", "e.jsonl", "--out", "out.jsonl")
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith("error: a bug in concordant: TypeError: oops")
    assert "Traceback" not in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["e.jsonl"]


def test_a_full_disk_fails_the_run_and_leaves_nothing(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    events(tmp_path, 1)
    monkeypatch.setattr("concordant.files.relations.relation_line", full)
    done = run("correlate", "A", "e.jsonl", "--out", "out.jsonl")
    assert (done.code, done.err) == (3, "error: No space left on device\n")
    assert [path.name for path in tmp_path.iterdir()] == ["e.jsonl"]


# --- processes ------------------------------------------------------------------------------------


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    events(tmp_path, 5_000)  # more lines than a pipe holds
    process = subprocess.Popen(
        [*COMMAND, "correlate", "A", "e.jsonl"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    assert b'"events":["s:1"]' in process.stdout.readline()
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), errors) == (0, b"")


def test_a_reader_of_the_help_may_leave_too(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [*COMMAND, "correlate", "--help"],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=writing,
        stderr=subprocess.PIPE,
        check=False,
        timeout=60,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_output_is_utf_8_whatever_the_terminal_says(spawn: Run, tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_text('{"topic": "A", "time": 1, "k": "é→"}\n', encoding="utf-8")
    done = spawn("correlate", "A partition by k", "e.jsonl", env=[("PYTHONIOENCODING", "ascii")])
    assert json.loads(done.out)["key"] == ["é→"]
    done = spawn("correlate", "A.é→ > 1", "e.jsonl", env=[("PYTHONIOENCODING", "ascii")])
    assert done.code == 2
    assert "Traceback" not in done.err


QUIET_IMPORTS = ["-W", "ignore:unclosed file:ResourceWarning"]
"""Python's own import, when it is interrupted, leaves the file of a module to the collector, and
warnings are errors here."""


class Terminal:
    """A command whose standard error is a terminal."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.screen, inside = os.openpty()
        self.shown = b""
        self.process = subprocess.Popen(
            [*COMMAND[:-2], *QUIET_IMPORTS, *COMMAND[-2:], *arguments],
            cwd=folder,
            env={**ENVIRONMENT, "TERM": "xterm"},
            stdout=subprocess.DEVNULL,
            stderr=inside,
        )
        os.close(inside)

    def read_until(self, text: bytes) -> None:
        """Read what is shown until the text appears, or (for b"") until the end."""
        while not text or text not in self.shown:
            try:
                new = os.read(self.screen, 4096)
            except OSError:  # the other side is closed
                new = b""
            if not new:
                assert not text, self.shown
                return
            self.shown += new

    def end(self) -> int:
        self.read_until(b"")
        os.close(self.screen)
        return self.process.wait(60)


def test_a_terminal_gets_progress_and_a_closing_line(tmp_path: Path) -> None:
    events(tmp_path, 3_000)
    terminal = Terminal(tmp_path, "correlate", "A.x <= 2", "e.jsonl", "--out", "out.jsonl")
    assert terminal.end() == 0
    shown = terminal.shown.decode()
    assert "correlating" in shown
    assert re.search(r"2 relations from 3,000 events in \d+\.\d\d s .* → out\.jsonl", shown)


def test_ctrl_c_in_the_middle_leaves_no_file(tmp_path: Path) -> None:
    events(tmp_path, 20_000)
    # No event is below an earlier one, so each is compared with all before it: minutes of work.
    terminal = Terminal(tmp_path, "correlate", "A[1].x > A[2].x", "e.jsonl", "--out", "out.jsonl")
    terminal.read_until(b"correlating")
    assert len(list(tmp_path.iterdir())) == 2, "the events, and the output while it is made"
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert b"interrupted" in terminal.shown
    assert b"Traceback" not in terminal.shown
    assert [path.name for path in tmp_path.iterdir()] == ["e.jsonl"]


# --- doctor ---------------------------------------------------------------------------------------


def test_the_doctor_names_what_it_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "_PACKAGES", {"msgspec": "", "no-such-thing": "nats"})
    done = run("doctor")
    assert (done.code, done.err) == (0, "")
    assert re.search(r"^ok +msgspec +\d", done.out, re.MULTILINE)
    assert "try: pip install 'concordant[nats]'" in done.out
    report = json.loads(run("doctor", "--json").out)
    assert report["ok"]
    assert {"Python", "msgspec", "no-such-thing", "Java", "machine"} == {
        finding["name"] for finding in report["findings"]
    }


def test_the_doctor_fails_when_the_core_misses_something(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_module, "_PACKAGES", {"no-such-thing": ""})
    done = run("doctor", "--json")
    assert done.code == 1
    assert not json.loads(done.out)["ok"]


def test_long_searches_are_warned_about_with_the_predicate_to_blame(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [{"topic": "A", "time": i, "x": 1} for i in range(2_500)]
    lines.append({"topic": "B", "time": 9_000, "x": 1})
    events = tmp_path / "events.jsonl"
    events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    impatient = partial(Kernel, search_budget=1_000)
    monkeypatch.setattr("concordant.correlate.kernel.Kernel", impatient)
    found = run("correlate", "A.x != B.x", str(events))
    assert found.code == 0
    assert "'A[1].x != B[1].x' has to be tried on every event queued for B[1]" in found.err
