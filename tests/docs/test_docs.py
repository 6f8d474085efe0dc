"""The documentation runs: every page is a small program, executed from top to bottom.

What a page may contain, and what is done with it, in the page's own temporary directory:

    ```python                run; the blocks of one page share their names
    ```output                what the python block right before it has printed
    ```console               `$ concordant …` is run, its output compared; `$ echo $?` is its code
    ```sub                   subscription text: it must parse
    <!-- file: NAME -->      the next block is the content of this file
    <!-- table: NAME -->     the next Markdown table is a DataFrame of this name, with `toArrow()`
    <!-- result: CODE -->    the next Markdown table is what this expression gives (an Arrow table)

Other blocks (text, sh, json) are shown and not run. Relative links must lead somewhere.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from concordant.cli.main import main
from concordant.language import parse

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINKED = sorted([*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"])

SHOWN_ONLY = {"|", "text", "sh", "json", "jsonl", "csv"}
"""Blocks that are not run; any other language is a slip (`|` is a Markdown table)."""

_MARK = re.compile(r"<!-- (file|table|result): (.+) -->\s*\Z")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block or a Markdown table, with the mark that stands before it."""

    line: int
    language: str
    text: str
    mark: tuple[str, str] | None = None


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page in order."""
    lines = text.splitlines()
    mark: tuple[str, str] | None = None
    at = 0
    while at < len(lines):
        start = at
        line = lines[at]
        at += 1
        found = _MARK.match(line)
        if found:
            mark = (found[1], found[2])
        elif line.startswith("```"):
            while lines[at] != "```":
                at += 1
            yield Block(start + 2, line[3:], "\n".join(lines[start + 1 : at]) + "\n", mark)
            at += 1
            mark = None
        elif line.startswith("|"):
            while at < len(lines) and lines[at].startswith("|"):
                at += 1
            yield Block(start + 1, "|", "\n".join(lines[start:at]) + "\n", mark)
            mark = None


def cells(table: str) -> list[list[str]]:
    """The rows of a Markdown table, the header first."""
    rows = [
        [cell.strip().strip("`") for cell in line.split("|")[1:-1]] for line in table.split("\n")
    ]
    return [row for row in rows if row and not set(row[0]) <= set("-: ")]


class DataFrame:
    """Stands for a DataFrame of PySpark, whose `toArrow` gives such a table."""

    def __init__(self, table: str) -> None:
        header, *rows = cells(table)
        columns = [[row[i] for row in rows] for i in range(len(header))]
        self._table = pa.table(
            {
                name: [int(cell) for cell in column] if all(map(str.isdigit, column)) else column
                for name, column in zip(header, columns, strict=True)
            }
        )

    def toArrow(self) -> Any:  # noqa: N802 - PySpark's name
        return self._table


class Page:
    """One page while it runs."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path, self.folder = path, folder
        self.names: dict[str, Any] = {"__name__": "page"}
        self.printed = ""

    def run(self) -> None:
        for block in blocks(self.path.read_text(encoding="utf-8")):
            self._run(block)

    def place(self, block: Block) -> str:
        return f"{self.path.relative_to(ROOT)}:{block.line}"

    def _run(self, block: Block) -> None:
        kind, value = block.mark or ("", "")
        if kind == "file":
            (self.folder / value).write_text(block.text, encoding="utf-8")
        elif kind == "table":
            self.names[value] = DataFrame(block.text)
        elif kind == "result":
            self._compare_table(block, eval(value, self.names))
        if block.language == "python":
            self._python(block)
        elif block.language == "output":
            assert self.printed == block.text, self.place(block)
        elif block.language == "console":
            self._console(block)
        elif block.language == "sub":
            parse(block.text, place=self.place(block))
        else:
            assert block.language in SHOWN_ONLY, f"{self.place(block)}: {block.language!r}"

    def _python(self, block: Block) -> None:
        code = compile("\n" * (block.line - 1) + block.text, str(self.path), "exec")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(code, self.names)
        self.printed = printed.getvalue()

    def _console(self, block: Block) -> None:
        code = 0
        for command, shown in commands(block.text):
            if command == "echo $?":
                given = f"{code}\n"
            else:
                program, *arguments = shlex.split(command)
                assert program == "concordant", f"{self.place(block)}: {command}"
                given, code = run(arguments)
            assert given == shown, f"{self.place(block)}: $ {command}"

    def _compare_table(self, block: Block, table: Any) -> None:
        header, *rows = cells(block.text)
        found = [[_shown(row[name]) for name in header] for row in table.to_pylist()]
        assert found == rows, self.place(block)


def run(arguments: list[str]) -> tuple[str, int]:
    """What the command prints, both streams as a terminal shows them, and its exit code."""
    raw = io.BytesIO()
    screen = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(screen):
        code = main(arguments)
    screen.flush()
    return raw.getvalue().decode(), code


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output shown for it."""
    for piece in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, shown = piece.partition("\n")
        yield command, shown


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:%H:%M}" if hasattr(value, "hour") else str(value)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_page_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    Page(path, tmp_path).run()


@pytest.mark.parametrize("path", LINKED, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    broken = []
    for target in _LINK.findall(_without_blocks(path.read_text(encoding="utf-8"))):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        page = (path.parent / name).resolve() if name else path
        if not page.exists() or (anchor and anchor not in anchors(page)):
            broken.append(target)
    assert broken == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", _without_blocks(page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_every_page_is_listed_in_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    docs = ROOT / "docs"
    pages = [page.relative_to(docs).as_posix() for page in PAGES if docs in page.parents]
    assert [page for page in pages if page != "index.md" and f"({page})" not in index] == []
