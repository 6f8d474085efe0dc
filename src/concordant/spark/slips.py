"""Slips in the tables of a file, told with table, key and what was meant.

Compares what a file says with structs of `msgspec`: unknown keys and values get the nearest known
one, a value of a wrong type is told with the type that is wanted. Knows no pipelines and no files;
the caller says which file it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec

from concordant.errors import UsageError
from concordant.language.clauses import suggestion


def refuse_slips(raw: Mapping[str, Any], kind: type[msgspec.Struct], place: str = "") -> None:
    """Refuse what a table says and a struct does not know, table by table, key by key."""
    where = f"{place}: " if place else ""
    fields = {one.name: one for one in msgspec.structs.fields(kind)}
    what = "key" if place else "table"
    for name in raw:
        if name not in fields:
            listed = f"the {what}s there are {', '.join(fields)}"
            raise UsageError(
                f"{where}there is no {what} '{name}'", hint=suggestion(name, fields) or listed
            )
    for name, field in fields.items():
        here = f"{place}, {name}" if place else name
        if name in raw:
            _refuse(raw[name], field.type, here)
        elif field.required:
            shown = f"[[{name}]]" if get_origin(field.type) is list else f"[{name}]"
            raise UsageError(
                f"{where}the {what} '{name}' is missing",
                hint=f"{name} = …" if place else f"add {shown}",
            )


def _refuse(value: Any, wanted: Any, place: str) -> None:
    """Refuse a value that is not of a type."""
    kinds = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else (wanted,)
    for one in kinds:
        if isinstance(one, type) and issubclass(one, msgspec.Struct):
            if not isinstance(value, dict):
                raise UsageError(f"{place}: it is a table", hint=f"begin it with [{place}]")
            refuse_slips(value, one, place)
            return
        inner = get_args(one)[0] if get_origin(one) is list else None
        if isinstance(inner, type) and issubclass(inner, msgspec.Struct):
            if isinstance(value, dict):
                raise UsageError(
                    f"{place}: there may be several of it", hint=f"write [[{place}]], not [{place}]"
                )
            if not isinstance(value, list):
                raise UsageError(f"{place}: it is a table", hint=f"begin it with [[{place}]]")
            for number, item in enumerate(value, 1):
                _refuse(item, inner, f"{place} {number}")
            return
    try:
        msgspec.convert(value, wanted)
    except msgspec.ValidationError:
        literals = [v for one in kinds if get_origin(one) is Literal for v in get_args(one)]
        if literals and isinstance(value, str):
            listed = ", ".join(literals)
            raise UsageError(
                f"{place}: '{value}' is unknown",
                hint=suggestion(value, literals) or f"one of {listed}",
            ) from None
        told = [_in_words(one) for one in kinds if one is not type(None)]
        raise UsageError(
            f"{place}: it is {' or '.join(words for words, _ in told)}, and not {_shown(value)}",
            hint=f"{place.rpartition(', ')[2]} = {told[0][1]}",
        ) from None


_WORDS: dict[Any, tuple[str, str]] = {
    str: ("a text", '"…"'),
    int: ("a whole number", "1"),
    bool: ("true or false", "true"),
    list: ("a list of texts", '["…", "…"]'),
    dict: ("a table of texts, numbers, true or false", '{ "…" = "…" }'),
}


def _in_words(kind: Any) -> tuple[str, str]:
    """A type, and a value of it."""
    origin = get_origin(kind)
    if origin is Literal:
        known = [f'"{one}"' for one in get_args(kind)]
        return " or ".join(known), known[0]
    return _WORDS[origin or kind]


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "a list"
    return "a table" if isinstance(value, dict) else repr(value)
