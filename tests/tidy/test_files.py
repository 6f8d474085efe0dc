"""Rules about the text of the repository's files."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted((ROOT / "src" / "concordant").rglob("*.py"))

LINE_COUNT_MAX = 500
"""A file that needs an outline is two files."""

# A path below the home or work directory of some machine; written so as not to match itself.
MACHINE_PATH = re.compile(r"(?<![\w.~/})-])/(?:work|root|(?:home|Users)/[\w.-]+)(?![\w-])")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME)\b")


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def places(paths: list[Path], pattern: re.Pattern[str]) -> list[str]:
    """`file:line: text` of every line of the files that the pattern is found in."""
    return [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in paths
        for number, line in enumerate(read(path).splitlines(), 1)
        if pattern.search(line)
    ]


def tracked_texts() -> list[Path]:
    """Every tracked file that is text; a file deleted but not yet committed is left out."""
    if shutil.which("git") is None:
        pytest.skip("git is not installed, so there is no list of tracked files")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listing.returncode != 0:
        pytest.skip("this tree is not a git repository")
    paths = [ROOT / name for name in listing.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and is_text(path)]


def is_text(path: Path) -> bool:
    try:
        read(path)
    except UnicodeDecodeError:
        return False
    return True


def test_every_module_opens_with_a_docstring() -> None:
    silent = [str(path.relative_to(ROOT)) for path in MODULES if not ast.get_docstring(parse(path))]
    assert silent == []


def parse(path: Path) -> ast.Module:
    return ast.parse(read(path), filename=str(path))


def test_no_module_is_too_long_to_read() -> None:
    lengths = {str(path.relative_to(ROOT)): len(read(path).splitlines()) for path in MODULES}
    assert {name: n for name, n in lengths.items() if n > LINE_COUNT_MAX} == {}


def test_nothing_in_the_source_waits_to_be_finished() -> None:
    assert places(MODULES, UNFINISHED) == []


def test_no_tracked_file_names_a_path_of_some_machine() -> None:
    assert places(tracked_texts(), MACHINE_PATH) == []


@pytest.mark.parametrize("path", ["/{}/main/x.py", "see /{}", '"/{}/a"', "=/{}:"])
@pytest.mark.parametrize("place", ["work", "root", "home/someone", "Users/someone"])
def test_a_path_of_some_machine_is_recognised(path: str, place: str) -> None:
    assert MACHINE_PATH.search(path.format(place))


@pytest.mark.parametrize(
    "text", ["a/work", "/worker", "~/work", "https://example.org/home/x", "/rooted", "/home"]
)
def test_other_text_with_slashes_is_no_path_of_a_machine(text: str) -> None:
    assert not MACHINE_PATH.search(text)
