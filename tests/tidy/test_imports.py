"""Rules about imports that import-linter cannot state; the layers are in pyproject.toml."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "concordant"

LIBRARIES = {
    "errors": set(),
    "model": {"msgspec"},
    "machine": {"msgspec"},
    "language": {"lark", "msgspec"},
    "correlate": {"llvmlite", "msgspec", "numba", "numpy"},
    "route": {"msgspec"},
    "order": {"msgspec"},
    "causal": {"msgspec"},
    "transact": {"msgspec"},
    "check": {"msgspec", "numba", "numpy"},
    "deliver": {"msgspec"},
}
"""The pure packages, and what each may import beside the standard library and its own."""

IMPURE = {
    "asyncio",
    "concurrent",
    "multiprocessing",
    "os",
    "pathlib",
    "random",
    "secrets",
    "selectors",
    "socket",
    "subprocess",
    "threading",
    "time",
}
"""Parts of the standard library with a clock, a thread, a file, a socket or chance in them."""

PRESENT = [name for name in LIBRARIES if (PACKAGE / name).is_dir() or name == "errors"]

UNSEEN_BY_SPARK = {"order", "causal", "transact", "route", "machine"}

HEAVY = {"asyncio", "numba", "pandas", "polars", "py4j", "pyarrow", "pyspark", "rich", "typer"}
"""What `import concordant` must leave alone: it starts nothing and is quick."""

OUTSIDE = {"pandas", "polars", "py4j", "pyarrow", "pyspark", "rich", "typer"}
"""What a pure package must not pull in, not even through another package of ours."""


def files_of(package: str) -> list[Path]:
    folder = PACKAGE / package
    return sorted(folder.rglob("*.py")) if folder.is_dir() else [PACKAGE / f"{package}.py"]


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> set[str]:
    """The dotted names of all modules that a file imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import: write the whole name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def loaded_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*sorted({{n.partition('.')[0] for n in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("package", PRESENT)
def test_a_pure_package_imports_only_what_it_may(package: str) -> None:
    allowed = (set(sys.stdlib_module_names) - IMPURE) | LIBRARIES[package] | {"concordant"}
    found = {
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in files_of(package)
        for name in imported(path)
        if name.partition(".")[0] not in allowed
    }
    assert sorted(found) == []


@pytest.mark.parametrize("package", PRESENT)
def test_a_pure_package_can_be_imported_alone(package: str) -> None:
    modules = ", ".join(module_name(path) for path in files_of(package))
    assert sorted(loaded_by(f"import {modules}") & OUTSIDE) == []


def test_importing_concordant_starts_nothing() -> None:
    assert sorted(loaded_by("import concordant") & HEAVY) == []


def test_spark_does_not_see_the_protocols() -> None:
    found = {
        f"{path.relative_to(SOURCE)} imports {name}"
        for path in sorted((PACKAGE / "spark").rglob("*.py"))
        for name in imported(path)
        if name.startswith("concordant.") and name.split(".")[1] in UNSEEN_BY_SPARK
    }
    assert sorted(found) == []
