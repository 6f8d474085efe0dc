"""Sessions: what is missing on the way to a server is said before anything starts."""

from __future__ import annotations

import importlib.util

import pytest

from concordant.errors import UsageError
from concordant.spark.session import cause, open_session


def test_a_connect_server_without_its_packages_is_told_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="'sc://somewhere' is a Spark Connect server") as told:
        open_session("sc://somewhere")
    assert "concordant[connect]" in told.value.hint


def test_the_cause_of_a_traceback_is_its_last_line_also_if_it_is_one_of_ours() -> None:
    text = 'Traceback (most recent call last):\n  File "x", line 1\n'
    ours = "concordant.spark.session.RunFailed: Spark did not start: no Java"
    assert cause(RuntimeError(f"{text}{ours}\n")).message == "Spark did not start: no Java"
