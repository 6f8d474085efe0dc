"""A data folder of another format is refused, and what is in it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from concordant.errors import UsageError
from concordant.net.folder import FORMAT, claim


def test_a_new_folder_is_made_and_known_again(tmp_path: Path) -> None:
    claim(tmp_path / "deep" / "n1")
    claim(tmp_path / "deep" / "n1")
    assert (tmp_path / "deep" / "n1" / "format").read_text() == f"{FORMAT}\n"


@pytest.mark.parametrize(("files", "said"), [({"machines": ""}, "1"), ({"format": "99\n"}, "99")])
def test_a_folder_of_another_format_is_refused(
    tmp_path: Path, files: dict[str, str], said: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=f"in format {said}, and this version writes {FORMAT}"):
        claim(tmp_path)
    assert {one.name: one.read_text() for one in tmp_path.iterdir()} == files


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("")
    with pytest.raises(UsageError, match="cannot be used"):
        claim(tmp_path / "data" / "n1")
