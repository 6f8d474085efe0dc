"""`concordant verify`: does a history keep the order that was promised?"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from concordant.check.levels import LEVELS, check_level, promised_level
from concordant.check.verdict import Verdict
from concordant.cli import terminal
from concordant.errors import UsageError
from concordant.files.history import read_history, runs


class EngineName(StrEnum):
    """Where histories are checked."""

    LOCAL = "local"


@terminal.guarded
def verify(
    histories: Annotated[
        list[Path],
        typer.Argument(
            metavar="HISTORY",
            show_default=False,
            help="Histories (.jsonl, .parquet), as simulate --out writes them.",
        ),
    ],
    level: Annotated[
        str | None,
        typer.Option(
            metavar="LEVEL",
            show_default=False,
            help=f"Check this promise instead of the one that the history names: "
            f"{', '.join(LEVELS)}.",
        ),
    ] = None,
    engine: Annotated[
        EngineName, typer.Option(help="Where to run: local is this process.")
    ] = EngineName.LOCAL,
    json: terminal.Json = False,
) -> None:
    """Check histories against the order level that was promised.

    Prints a verdict per property. If one does not hold, its first violation is told and the exit
    code is 1.

    \b
    Examples:
      concordant verify run7/history-7.jsonl
      concordant verify run7/history-7.jsonl --level causal
    """
    del engine  # one engine so far; the option is part of the stable command line
    checked: list[tuple[str, str, list[Verdict]]] = []
    for path in histories:
        for run, rows in runs(read_history(path)).items():
            try:
                promised = level or promised_level(rows)
                checked.append((run, promised, check_level(rows, promised)))
            except UsageError as error:
                raise error.located(str(path)) from None
    if not checked:
        raise UsageError("the histories have no rows", place=str(histories[0]))
    ok = all(verdict.holds for _, _, verdicts in checked for verdict in verdicts)
    if json:
        terminal.print_json(
            {
                "ok": ok,
                "runs": [
                    {
                        "run": run,
                        "level": promised,
                        "verdicts": [
                            {
                                "property": one.name,
                                "holds": one.holds,
                                "checked": one.checked,
                                "violation": one.violation,
                            }
                            for one in verdicts
                        ],
                    }
                    for run, promised, verdicts in checked
                ],
            }
        )
    else:
        for run, promised, verdicts in checked:
            terminal.print_text(f"{run}: {promised}")
            for verdict in verdicts:
                terminal.print_text("  " + str(verdict).replace("\n", "\n  "))
    if not ok:
        raise typer.Exit(terminal.EXIT_CHECK_FAILED)
