"""What all commands share: where they print, how they fail, how they are interrupted.

Results go to standard output, everything else to standard error. Colours and progress appear only
on a terminal. Exit codes: 0 ok, 1 a check failed, 2 bad usage or input, 3 the run failed,
130 interrupted.
"""

from __future__ import annotations

import functools
import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from concordant.errors import ConcordantError, InvariantViolation, UsageError

EXIT_CHECK_FAILED = 1
EXIT_USAGE = 2
EXIT_RUN_FAILED = 3
EXIT_INTERRUPTED = 130

DEBUG = "CONCORDANT_DEBUG"
"""Set in the environment, it shows the traceback of a bug of ours instead of a sentence."""


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # `guarded` ends it; rich would exit with 1


out = _Console(soft_wrap=True, highlight=False)
err = _Console(stderr=True, soft_wrap=True, highlight=False)

Json = Annotated[
    bool, typer.Option("--json", help="Print for programs: JSON only, errors and warnings too.")
]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_WrongArguments: type[Any] = typer.BadParameter.__bases__[0]
"""Click's base of wrong arguments, wherever this version of Typer keeps Click."""


@contextmanager
def spark_needed() -> Iterator[None]:
    """Around imports of what needs PySpark: without it, a sentence."""
    try:
        yield
    except ImportError:
        raise UsageError(
            "PySpark is not installed", hint="pip install 'concordant[spark]'"
        ) from None


def run(app: typer.Typer, arguments: Sequence[str]) -> int:
    """Run one command of an app and return its exit code; nothing escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal may not have all our signs
            stream.reconfigure(errors="backslashreplace")
    as_json = "--json" in arguments
    try:
        code = guarded(_call)(app, arguments, json=as_json)
    except _WrongArguments as wrong:
        path = wrong.ctx.command_path if wrong.ctx else "concordant"
        error = UsageError(wrong.format_message(), hint=f"{path} --help")
        return _told(error, EXIT_USAGE, as_json)
    except typer.Exit as end:
        return end.exit_code
    except (typer.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return code


def _call(app: typer.Typer, arguments: Sequence[str], *, json: bool) -> int:
    del json  # `guarded` reads it
    try:
        code = app(list(arguments), prog_name="concordant", standalone_mode=False)
    except SystemExit:  # Click's way out when the reader of a help text went away
        raise BrokenPipeError from None
    sys.stdout.flush()  # here, where a reader that went away is no error
    return code if isinstance(code, int) else 0


def guarded(command: Callable[_P, _R]) -> Callable[_P, _R]:
    """A command whose errors end as one message and an exit code, never as a traceback."""

    @functools.wraps(command)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        as_json = bool(kwargs.get("json", False))
        try:
            return command(*args, **kwargs)
        except UsageError as error:
            _fail(error, EXIT_USAGE, as_json)
        except BrokenPipeError:
            # The reader (head, less) has seen enough; keep Python from flushing into the pipe.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from None
        except KeyboardInterrupt as interrupt:
            told = str(interrupt) or "no file was left half-written"
            _fail(ConcordantError(f"interrupted; {told}"), EXIT_INTERRUPTED, as_json)
        except (typer.Exit, typer.Abort, _WrongArguments):
            raise
        except InvariantViolation as error:
            _fail_by_bug(error, as_json)
        except (ConcordantError, OSError, MemoryError) as error:
            _fail(error, EXIT_RUN_FAILED, as_json)
        except Exception as error:  # whatever it is, it is ours and not the caller's
            _fail_by_bug(error, as_json)

    return wrapped


def _fail_by_bug(error: Exception, as_json: bool) -> NoReturn:
    if os.environ.get(DEBUG):
        raise error
    text = str(error).strip()
    told = ConcordantError(
        f"a bug in concordant: {type(error).__name__}{': ' if text else ''}{text}\n"
        f"  please report it with the traceback that {DEBUG}=1 shows"
    )
    _fail(told, EXIT_RUN_FAILED, as_json)


def _fail(error: BaseException, code: int, as_json: bool) -> NoReturn:
    _told(error, code, as_json)
    raise typer.Exit(code) from None


def _told(error: BaseException, code: int, as_json: bool) -> int:
    message, hint, place = (getattr(error, name, "") for name in ("message", "hint", "place"))
    message = message or str(error)
    if isinstance(error, MemoryError):
        message = f"out of memory {message}".strip()
    elif isinstance(error, OSError) and error.strerror:
        message, place = error.strerror, str(error.filename or "")
    if as_json:
        body = {"error": {"message": message, "hint": hint, "place": place}}
        err.print(msgspec.json.encode(body).decode(), markup=False, emoji=False)
    else:
        where = f"{place}: " if place else ""
        err.print(f"[bold red]error:[/] {escape(where + message)}", emoji=False)
        if hint:
            err.print(f"[bold]  try:[/] {escape(hint)}", emoji=False)
    return code


def warn(message: str, *, json: bool) -> None:
    """Something that does not stop the command, on standard error."""
    if json:
        err.print(msgspec.json.encode({"warning": message}).decode(), markup=False, emoji=False)
    else:
        err.print(f"[yellow]warning:[/] {escape(message)}", emoji=False)


def print_text(text: str) -> None:
    """Lines for people on standard output."""
    out.print(text, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """One JSON document in one line on standard output."""
    print_lines([msgspec.json.encode(value).decode()])


def print_lines(lines: Iterable[str]) -> None:
    """Lines for programs on standard output: UTF-8, whatever the terminal's encoding is."""
    sys.stdout.flush()
    sys.stdout.buffer.writelines(f"{line}\n".encode() for line in lines)
    sys.stdout.buffer.flush()


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
