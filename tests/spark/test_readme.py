"""The first screen of the README, typed into a Python shell, prints the table that it shows."""

from __future__ import annotations

import contextlib
import io
from code import InteractiveConsole
from pathlib import Path
from typing import Any

from tests.docs.test_docs import blocks

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_first_screen_typed_line_by_line_prints_what_it_shows(spark: Any) -> None:
    del spark  # the shell takes the session that is there
    typed, shown, *_ = blocks(README.read_text(encoding="utf-8"))
    assert (typed.language, shown.language) == ("python", "output")
    shell, printed, complaints = InteractiveConsole(), io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complaints):
        more = [shell.push(line) for line in typed.text.splitlines()]
    assert not more[-1]
    assert not complaints.getvalue()
    assert printed.getvalue().strip() == shown.text.strip()
