"""`node`, `publish` and `subscribe` as a newcomer meets them: real processes, Ctrl-C, bad input."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ports import free_ports
from tests.unit.cli.conftest import Run

COMMAND = [sys.executable, "-m", "concordant.cli.main"]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node with a door."""
    (port,) = free_ports(1)
    file = tmp_path_factory.mktemp("node") / "cluster.toml"
    file.write_text(
        f'[cluster]\nname = "test"\n[nodes.n1]\ndoor = "127.0.0.1:{port}"\n'
        '[credentials]\napplications = "hush"\n'
    )
    with subprocess.Popen([*COMMAND, "node", str(file)], stderr=subprocess.PIPE, text=True) as node:
        assert node.stderr is not None
        while '"started"' not in (line := node.stderr.readline()):
            assert line, "the node did not start"
        yield f"tcp://127.0.0.1:{port}"
        node.send_signal(signal.SIGTERM)
        assert '"stopped"' in node.stderr.read()
        assert node.wait(20) == 0


def test_a_subscriber_prints_what_is_published_until_ctrl_c(door: str, tmp_path: Path) -> None:
    command = [*COMMAND, "subscribe", door, "T", "--token", "hush"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert reader.stderr.readline() == "subscribed: T\n"
        done = subprocess.run(
            [*COMMAND, "publish", door, "--topic", "T", "--name", "p", "--token", "hush"],
            input='{"n": 1, "deep": {"x": true}}\n\n{"n": 2}',
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == "published 2 events\n"
        lines = [json.loads(reader.stdout.readline()) for _ in range(2)]
        assert [(one["seq"], one["n"], one["position"]) for one in lines] == [(1, 1, 1), (2, 2, 2)]
        assert lines[0]["deep.x"] is True
        reader.send_signal(signal.SIGINT)
        assert reader.wait(20) == 130
        assert reader.stderr.read() == ""


def test_ctrl_c_ends_a_publisher_that_waits_for_input(door: str) -> None:
    command = [*COMMAND, "publish", door, "--topic", "T", "--token", "hush"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as writer:
        with subprocess.Popen(
            [*COMMAND, "subscribe", door, "T", "--token", "hush", "--count", "1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as reader:
            assert reader.stdout is not None
            assert reader.stderr is not None
            assert reader.stderr.readline() == "subscribed: T\n"
            assert writer.stdin is not None
            writer.stdin.write('{"n": 1}\n')
            writer.stdin.flush()
            assert json.loads(reader.stdout.readline())["n"] == 1
            assert reader.wait(20) == 0
        writer.send_signal(signal.SIGINT)
        assert writer.wait(20) == 130
        assert writer.stderr is not None
        assert "Traceback" not in writer.stderr.read()


def test_a_bad_line_stops_publishing_and_says_where(door: str, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    for bad, said in (
        ("[1]", "no JSON object"),
        ("{", "the line is no JSON"),
        ('{"n": 1}', "needs a topic"),
        ('{"topic": "T", "n": [1]}', "cannot be [1]"),
        ("[" * 100_000, "the line is no JSON"),
    ):
        file.write_text(f'{{"topic": "T"}}\n{bad}\n')
        done = run("publish", door, str(file), "--token", "hush")
        assert done.code == 2
        assert f"{file}:2: " in done.err
        assert "published 1 event\n" in done.err
        assert said in done.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("publish", "DOOR"), "does not show the credentials"),
        (("publish", "DOOR", "none.jsonl", "--token", "hush"), "none.jsonl: it cannot be read"),
        (("publish", "nowhere"), "'nowhere' is no address of a bus"),
        (("subscribe", "DOOR", "T", "--order", "best"), "there is no order 'best'"),
        (("subscribe", "DOOR", "T", "--token", "hush", "--slow", "no"), "--slow no"),
        (("subscribe", "DOOR", "A then", "--token", "hush"), "1:7"),
        (
            ("subscribe", "DOOR", "T", "--order=total-strict", "--strategy=clock", "--token=hush"),
            "does not offer the strategy 'clock'",
        ),
        (("subscribe", "DOOR", "A then B", "--topics", "none.toml"), "no such file of topics"),
        (("node", "none.toml"), "no such cluster file"),
    ],
)
def test_what_cannot_work_is_told_in_a_sentence(
    door: str, run: Run, arguments: tuple[str, ...], said: str
) -> None:
    done = run(*(door if one == "DOOR" else one for one in arguments))
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
