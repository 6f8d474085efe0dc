"""Files that are to stay as they were: their bytes in whole lines; what changes them is told."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import numpy as np
import pytest

from concordant.errors import UsageError
from concordant.spark.cells import has_long_line
from concordant.spark.unchanged import looked_at


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("concordant.spark.unchanged.BLOCK", 16)


def test_blocks_are_whole_lines_and_together_the_file(tmp_path: Path) -> None:
    rng = Random(1)
    path = tmp_path / "lines.csv"
    for _ in range(200):
        lines = [b"x" * rng.choice([0, 1, 5, 15, 16, 17, 40]) for _ in range(rng.randint(0, 9))]
        data = b"\n".join(lines) + rng.choice([b"", b"\n"])
        path.write_bytes(data)
        blocks = [block.tobytes() for block in looked_at(str(path)).blocks()]
        assert b"".join(blocks) == data
        assert all(block.endswith(b"\n") for block in blocks[:-1])


@pytest.mark.parametrize("change", ["grown", "cut", "emptied", "replaced", "touched"])
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_file_that_is_changed_is_refused(tmp_path: Path, change: str, when: str) -> None:
    path = tmp_path / "lines.csv"
    path.write_bytes(b"0123456\n" * 9)
    file = looked_at(str(path))
    blocks = file.blocks()
    if when == "while":
        assert next(blocks).tobytes() == b"0123456\n" * 2
    if change == "grown":
        with path.open("ab") as opened:
            opened.write(b"more\n")
    elif change in ("cut", "emptied"):
        os.truncate(path, 20 if change == "cut" else 0)
    elif change == "replaced":
        (tmp_path / "other.csv").write_bytes(b"6543210\n" * 9)
        os.utime(tmp_path / "other.csv", ns=(0, file.changed_ns + 1))
        (tmp_path / "other.csv").replace(path)
    else:
        os.utime(path, ns=(0, file.changed_ns + 1))
    with pytest.raises(UsageError, match=r"lines\.csv has changed since it was looked at"):
        list(blocks)


def test_a_long_line_is_found_wherever_it_is() -> None:
    rng = Random(2)
    for _ in range(500):
        lengths = [rng.randrange(12) for _ in range(rng.randint(1, 6))]
        data = b"\n".join(b"x" * length for length in lengths) + rng.choice([b"", b"\n"])
        found = has_long_line(np.frombuffer(data, np.uint8), 8)
        assert found == (max(lengths) > 8), data
