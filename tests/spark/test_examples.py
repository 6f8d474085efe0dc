"""The examples of Spark run: pipelines give the kernel's relations, the notebook what it shows."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from concordant.local import correlate
from concordant.spark.pipeline import read_pipeline
from concordant.spark.run import Report, run_pipeline

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
RISING = [
    {"key": list(one.key), "events": list(one.event_ids)}
    for one in correlate(EXAMPLES / "stock.jsonl", EXAMPLES / "rising.sub")
]


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path / "examples")
    return tmp_path / "examples"


def run(spark: Any, path: Path) -> Report:
    return run_pipeline(
        read_pipeline(path),
        spark,
        generate=lambda source: source.path,
        show=lambda rows: None,
        told=lambda line: None,
    )


def relations(folder: Path) -> list[dict[str, Any]]:
    texts = [path.read_text() for path in sorted(folder.glob("[0-9]*.jsonl"))]
    found = [json.loads(line) for text in texts for line in text.splitlines()]
    return [{"key": one["key"], "events": one["events"]} for one in found]


def test_a_file_is_read_once(spark: Any, examples: Path) -> None:
    report = run(spark, examples / "pipelines" / "files.toml")
    assert relations(examples.parent / "out" / "stock" / "relations") == RISING
    assert report.relations == {"rising": len(RISING)}


def test_a_folder_that_grows_is_taken_up_where_it_was_left(spark: Any, examples: Path) -> None:
    second = (examples / "folder" / "2.jsonl").rename(examples / "2.jsonl")
    run(spark, examples / "pipelines" / "folder.toml")
    before = relations(examples.parent / "out" / "folder" / "relations")
    second.rename(examples / "folder" / "2.jsonl")
    report = run(spark, examples / "pipelines" / "folder.toml")
    assert before != RISING
    assert relations(examples.parent / "out" / "folder" / "relations") == RISING
    assert not report.set_aside


def test_the_notebook_prints_what_it_shows(spark: Any, examples: Path) -> None:
    """To write what it prints into the notebook, run it in Jupyter and save it."""
    del spark  # the notebook takes the session that is there
    names: dict[str, Any] = {}
    for cell in json.loads((examples / "rising.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec("".join(cell["source"]), names)
            shown = "".join(line for output in cell["outputs"] for line in output["text"])
            assert printed.getvalue() == shown
