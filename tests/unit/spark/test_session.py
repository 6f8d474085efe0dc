"""Sessions: what is missing on the way to a server is said before anything starts."""

from __future__ import annotations

import importlib.util

import pytest

from concordant.errors import UsageError
from concordant.spark.session import open_session


def test_a_connect_server_without_its_packages_is_told_with_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match="'sc://somewhere' is a Spark Connect server") as told:
        open_session("sc://somewhere")
    assert "concordant[connect]" in told.value.hint
