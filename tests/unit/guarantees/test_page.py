"""The documentation's table is the table of the code.

To write it anew: CONCORDANT_REWRITE=1 .venv/bin/python -m pytest tests/unit/guarantees/test_page.py
"""

from __future__ import annotations

import os
from pathlib import Path

from concordant.guarantees.page import page

PATH = Path(__file__).resolve().parents[3] / "docs" / "concepts" / "guarantees.md"


def test_the_page_is_up_to_date() -> None:
    if os.environ.get("CONCORDANT_REWRITE"):
        PATH.write_text(page(), encoding="utf-8")
    assert PATH.read_text(encoding="utf-8") == page()
