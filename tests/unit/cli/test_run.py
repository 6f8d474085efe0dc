"""`concordant run` tells what is wrong with a pipeline before Spark starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from concordant.cli.main import main

ROOT = Path(__file__).resolve().parents[3]


PIPELINES = [
    p for folder in ("pipelines", "kafka") for p in (ROOT / "examples" / folder).glob("*.toml")
]


@pytest.mark.parametrize("path", sorted(PIPELINES), ids=str)
def test_the_examples_are_good_pipelines(path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(path), "--check"]) == 0
    assert capfd.readouterr().out.startswith(f"{path}: ok\n")


def test_a_check_says_what_would_be_done(capfd: pytest.CaptureFixture[str]) -> None:
    path = ROOT / "examples" / "pipelines" / "folder.toml"
    assert main(["run", str(path), "--check"]) == 0
    told = capfd.readouterr().out.splitlines()
    assert told[1:4] == ["name: folder", "master: local[*]", "subscriptions: rising"]
    assert told[4].startswith(f"source 1: jsonl, path {ROOT}/examples/folder, fields topic string")
    assert told[5:7] == [f"sink 1: jsonl, path {ROOT}/out/folder/relations", "sink 2: table"]
    assert "release frontier" in told[7] and f"checkpoint {ROOT}/out/folder/checkpoint" in told[7]
    assert main(["run", str(path), "--check", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["subscriptions"] == ["rising"]
    assert found["sinks"] == [
        {"kind": "jsonl", "path": f"{ROOT}/out/folder/relations"},
        {"kind": "table"},
    ]
    assert found["stream"]["sources"] == ["quotes", "filings"]


def test_a_wrong_key_is_told_with_file_and_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[question]\nsubscriptions = "A"\n[[source]]\nkind = 3\n[[sink]]\n')
    assert main(["run", str(path)]) == 2
    told = capfd.readouterr().err
    assert "p.toml: source 1, kind: " in told
    assert "Traceback" not in told
