"""Subscriptions from where people keep them: text, `.sub` files, values made by operators.

Whoever answers questions (this machine's memory, Spark) reads them through this one door, so that a
slip gives the same sentence everywhere. Knows files and places; the language itself is below.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from concordant.errors import UsageError
from concordant.language import checked, parse
from concordant.language.clauses import consume_word, match_words
from concordant.model.subscription import Policy, Subscription
from concordant.model.topic import Schemas, Topic

Question = str | Path | Subscription | Sequence[Subscription]
"""Subscriptions: their text, a file of it, or values made by operators."""

_PERHAPS_PATH = re.compile(r"(?=.*[./])[\w./~-]+")
_FILE_NAME = re.compile(r"(?!.*\bpartition by\b)[^<>=]+\.sub")
"""A name that ends in .sub, and no text that ends with an attribute called sub."""


def read_subscriptions(
    question: Question, *, match: str | None = None, consume: str | None = None
) -> tuple[Subscription, ...]:
    """Subscriptions from text, a file or values; `match` and `consume` override theirs.

    A string is a file if one of that name exists or if it looks like the name of a `.sub` file;
    everything else is the text of subscriptions.
    """
    if isinstance(question, Subscription):
        found: tuple[Subscription, ...] = (question,)
    elif isinstance(question, str | Path):
        path = subscription_file(question)
        found = _from_text(str(question)) if path is None else _from_file(path)
    else:
        found = tuple(question)
        for one in found:
            if not isinstance(one, Subscription):
                raise UsageError(
                    f"a {type(one).__name__} is not a subscription",
                    hint="give one text with all subscriptions, or values made by operators",
                )
    policies = [_policy(one.policy, match, consume) for one in found]
    return tuple(
        msgspec.structs.replace(one, policy=policy)
        for one, policy in zip(found, policies, strict=True)
    )


def subscription_file(question: Question) -> Path | None:
    """The file that a question names, which may be missing; None if it is text or a value."""
    if isinstance(question, Path):
        return question
    if not isinstance(question, str) or "\n" in question:
        return None
    path = Path(question)
    try:
        exists = path.is_file()
    except OSError:  # too long for a name
        exists = False
    return path if exists or _FILE_NAME.fullmatch(question) else None


def _from_file(path: Path) -> tuple[Subscription, ...]:
    try:
        text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise UsageError(
            "the line is not UTF-8",
            hint="convert the file: iconv -t UTF-8",
            place=f"{path}:{line}",
        ) from None
    except FileNotFoundError:
        raise UsageError(
            "there is no such subscription file",
            hint="check the path, or give the subscription's text itself",
            place=str(path),
        ) from None
    except OSError as error:
        raise UsageError(
            f"the subscription file cannot be read: {error.strerror or error}",
            hint="give a .sub file, or the subscription's text itself",
            place=str(path),
        ) from None
    return parse(text, default_name=path.stem, place=str(path))


def _from_text(text: str) -> tuple[Subscription, ...]:
    try:
        return parse(text)
    except UsageError as error:
        if _PERHAPS_PATH.fullmatch(text):
            hint = f"{error.hint}; or is it a file? There is none of this name".removeprefix("; ")
            raise UsageError(error.message, hint=hint, place=error.place) from None
        raise


def _policy(own: Policy, match: str | None, consume: str | None) -> Policy:
    """A subscription's own policy with what is given in its place."""
    words = own if match is None else match_words(match.split())
    return Policy(
        words.match,
        words.contiguous,
        words.staged,
        own.consume if consume is None else consume_word(consume.strip()),
    )


def checked_question(
    subscriptions: Sequence[Subscription], topics: Schemas, *, question: Question = ""
) -> tuple[tuple[Subscription, ...], dict[str, Topic]]:
    """The subscriptions after the static checks, and the topics that they derive.

    `question` is what they came from: if it is a file, errors name it.
    """
    try:
        return checked(subscriptions, topics)
    except UsageError as error:
        path = subscription_file(question)
        raise error.located(str(path)) if path else error from None
