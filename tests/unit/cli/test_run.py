"""`concordant run` tells what is wrong with a pipeline before Spark starts."""

from __future__ import annotations

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
    assert capfd.readouterr().out.strip().endswith("ok")


def test_a_wrong_key_is_told_with_file_and_table(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "p.toml"
    path.write_text('[question]\nsubscriptions = "A"\n[[source]]\nkind = 3\n[[sink]]\n')
    assert main(["run", str(path)]) == 2
    told = capfd.readouterr().err
    assert "p.toml: source 1, kind: " in told
    assert "Traceback" not in told
