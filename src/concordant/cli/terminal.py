"""What all commands share: where they print, how they fail, how they are interrupted.

Results go to standard output, everything else to standard error. Colours and progress appear only
on a terminal. Exit codes: 0 ok, 1 a check failed, 2 bad usage or input, 3 the run failed,
130 interrupted.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from concordant.errors import ConcordantError, UsageError

EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_RUN_FAILED = 3
EXIT_INTERRUPTED = 130

out = Console(soft_wrap=True, highlight=False)
err = Console(stderr=True, soft_wrap=True, highlight=False)

Json = Annotated[bool, typer.Option("--json", help="Print for programs: JSON, errors included.")]

_P = ParamSpec("_P")
_R = TypeVar("_R")


def guarded(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """A command whose errors end as one message and an exit code, never as a traceback."""

    @functools.wraps(command)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        as_json = bool(kwargs.get("json", False))
        try:
            return command(*args, **kwargs)
        except UsageError as error:
            _fail(error, EXIT_USAGE, as_json)
        except ConcordantError as error:
            _fail(error, EXIT_RUN_FAILED, as_json)
        except BrokenPipeError:
            # The reader (head, less) has seen enough; keep Python from flushing into the pipe.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            err.print("interrupted; nothing was left half-written")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except (OSError, MemoryError) as error:
            _fail(error, EXIT_RUN_FAILED, as_json)

    return run


def _fail(error: BaseException, code: int, as_json: bool) -> NoReturn:
    message, hint, place = str(error), "", ""
    if isinstance(error, UsageError):
        message, hint, place = error.message, error.hint, error.place
    elif not message:
        message = type(error).__name__
    if as_json:
        body = {"error": {"message": message, "hint": hint, "place": place}}
        err.print(msgspec.json.encode(body).decode(), markup=False)
    else:
        where = f"{place}: " if place else ""
        err.print(f"[bold red]error:[/] {escape(where + message)}")
        if hint:
            err.print(f"[bold]  try:[/] {escape(hint)}")
    raise typer.Exit(code)


def print_json(value: Any) -> None:
    """One JSON document per line on standard output."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


@contextmanager
def progress(label: str, total: int, *, shown: bool = True) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while long work runs, and nothing where nobody looks."""
    if not shown or not err.is_terminal:
        yield lambda _done: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=err, transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, completed=done)
