"""How a planted bug comes in and goes again: one way for all kinds of bugs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest

Plant = Callable[[pytest.MonkeyPatch], None]


class Plantable(Protocol):
    """Whatever says how to make a false sentence true."""

    @property
    def plant(self) -> Plant: ...


@contextmanager
def planted(which: Plantable) -> Iterator[None]:
    """The bug is there for as long as the context is open."""
    with pytest.MonkeyPatch.context() as patch:
        which.plant(patch)
        yield
