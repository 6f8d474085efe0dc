"""Text to subscriptions: the one door of the native language.

`parse` bounds the text, runs the grammar, gives each subscription its name and turns whatever goes
wrong into a `UsageError` with line, column, caret, expectation and hint. What rules mean is in
`reader`, what slips mean in `slips`; topics' schemas are unknown here (see `check`).
"""

from __future__ import annotations

import re
from functools import cache
from importlib import resources
from typing import Any, cast

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from concordant.errors import UsageError
from concordant.language import literals
from concordant.language.normal import conjunctions
from concordant.language.reader import Clause, Draft, Label, Reader
from concordant.language.slips import (
    KEYWORDS,
    expected_words,
    explain_character,
    explain_token,
)
from concordant.language.source import Refused, Source
from concordant.model.subscription import Policy, Subscription


def parse(
    text: str, *, default_name: str = "subscription", place: str = ""
) -> tuple[Subscription, ...]:
    """The subscriptions that a text holds, in written order.

    `default_name` names a single subscription that has no name of its own; `place` (a file, say)
    stands in front of line and column in errors.

    >>> print(parse("Order then Payment partition by order_id within 10 min")[0])
    subscription:
      Order[1].position < Payment[1].position
      match first consume prefix
      partition by order_id
      within 10 min
    <BLANKLINE>
    """
    source = Source(text, place)
    source.check_bounds()
    try:
        labels = _labels(source)
        _refuse_repeated(labels)
        return tuple(
            _subscription(label.draft, default_name if label.name is None else label.name)
            for label in labels
        )
    except Refused as refused:
        raise source.error(refused.at, refused.message, refused.hint) from None


@cache
def _grammar() -> Lark:
    text = resources.files(__package__).joinpath("grammar.lark").read_text(encoding="utf-8")
    return Lark(text, parser="lalr", lexer="contextual", transformer=Reader())


_OPERAND_TYPES = (
    *("NAME", "QUOTED", "DOT", "LSQB", "RSQB", "INT", "FLOAT", "DURATION", "STRING"),
    *("TRUE", "FALSE", "PLUS", "MINUS", "STAR", "SLASH"),
)


def _labels(source: Source) -> list[Label]:
    parser = _grammar().parse_interactive(source.text)
    tokens: list[Token] = []
    try:
        for token in parser.iter_parse():
            tokens.append(token)
        end: Any = parser.feed_eof  # lark does not type it
        return cast("list[Label]", end(tokens[-1] if tokens else None))
    except UnexpectedToken as unexpected:
        if tokens and tokens[-1] is unexpected.token:
            tokens.pop()
        raise _unexpected(source.text, unexpected.token, tokens) from None
    except UnexpectedCharacters as unexpected:
        at = cast("int", unexpected.pos_in_stream)
        sentence, hint = explain_character(source.text, at)
        if sentence.startswith("found '"):
            sentence += f", expected {expected_words(_accepted(tokens))}"
        raise Refused(at, sentence, hint) from None


def _accepted(tokens: list[Token]) -> set[str]:
    """The terminals that may follow these tokens."""
    parser = _grammar().parse_interactive()
    for token in tokens:
        parser.feed_token(token)
    accepts: Any = parser.accepts
    accepted = cast("set[str]", accepts())
    for token in reversed(tokens):  # the grammar lets comparisons be chained, the reader does not
        if token.type in ("COMPARE", "EQUAL"):
            return accepted - {"COMPARE", "EQUAL", "THEN"}
        if token.type not in _OPERAND_TYPES:
            break
    return accepted


def _unexpected(text: str, token: Token, before: list[Token]) -> Refused:
    accepted = _accepted(before)
    expected = expected_words(accepted)
    if token.type == "$END":
        end = before[-1].end_pos if before else 0
        assert end is not None
        opened = "RPAR" in accepted and "COMMA" not in accepted
        hint = "a '(' is still open" if opened else ""
        return Refused(end, f"found the end of the text, expected {expected}", hint)
    assert token.start_pos is not None and token.end_pos is not None
    if token.type == "LABEL":
        label = token.rstrip(":").rstrip()
        hint = ""
        if "$END" in accepted:
            hint = "a text with several subscriptions needs a name for each, the first one too"
        return Refused(token.start_pos, f"found the name '{label}:', expected {expected}", hint)
    if accepted == {"DURATION"}:
        return _no_duration(text, token)
    if accepted == {"INT"} and before[-1].type == "LSQB":
        hint = f"number the instance from 1, as in: {before[-2]}[1]"
        return Refused(token.start_pos, f"found '{token}', expected a whole number", hint)
    at, found, hint = explain_token(text, token.start_pos)
    if token.type in ("STRING", "FLOAT", "DURATION", "INT", "QUOTED"):
        found = str(token) if len(token) <= 40 else token[:39] + "…"
    return Refused(at, f"found '{found}', expected {expected}", hint)


def _no_duration(text: str, token: Token) -> Refused:
    """After `within`: a number without a unit of time, or no number at all."""
    assert token.start_pos is not None and token.end_pos is not None
    following = re.compile(r"[ \t]*([^\W\d]\w*)").match(text, token.end_pos)
    if token.type not in ("INT", "FLOAT"):
        sentence = f"found '{token}', expected a duration such as 5 min"
    elif following and following.group(1) not in KEYWORDS:
        sentence = f"found '{token} {following.group(1)}', and that is not a unit of time"
    else:
        sentence = f"found '{token}' without a unit of time, expected a duration such as 5 min"
    return Refused(token.start_pos, sentence, literals.UNIT_HINT)


def _refuse_repeated(labels: list[Label]) -> None:
    seen: set[str | None] = set()
    for label in labels:
        if label.name in seen:
            raise Refused(
                label.at,
                f"the name '{label.name}' is used twice",
                "give each subscription a name of its own",
            )
        seen.add(label.name)


def _subscription(draft: Draft, name: str) -> Subscription:
    fields = _fields(draft.clauses)
    policy = {key: fields.pop(key) for key in Policy.__struct_fields__ if key in fields}
    try:
        return Subscription(name, conjunctions(draft.formula), Policy(**policy), **fields)
    except UsageError as error:
        raise Refused(_blamed(draft, error), error.message, error.hint) from None


def _fields(clauses: list[Clause]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    seen: set[str] = set()
    for clause in clauses:
        if clause.word in seen:
            raise Refused(
                clause.at, f"the clause '{clause.word}' is given twice", "give each clause once"
            )
        seen.add(clause.word)
        fields |= clause.fields
    return fields


def _blamed(draft: Draft, error: UsageError) -> int:
    """Where the model's complaint belongs: at the clause whose word it begins with."""
    for clause in sorted(draft.clauses, key=lambda clause: -len(clause.word)):
        if error.message.startswith(f"'{clause.word}"):
            return clause.at
    return draft.at
