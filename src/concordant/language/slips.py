"""Slips: what people write when they mean something else, and words for what was expected.

Tables of habits from other languages (SQL, Python, C, Esper, Flink), each with the way to say it
here. Nothing in this module decides whether a text is right; it only explains what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet

from concordant.language.clauses import suggestion
from concordant.language.literals import UNIT_HINT, UNITS
from concordant.model.expression import Slot, quoted

KEYWORDS = (
    *("and", "or", "not", "then", "match", "consume", "partition", "by", "within", "cap"),
    *("emit", "order", "true", "false"),
)

_NULL_HINT = (
    "a predicate on null is always false, so there is nothing to compare with; leave it out"
)
_SQL_HINT = "there is no SELECT or WHERE: write the formula itself, as in: A.x > 10 and B.y = A.y"
_THEN_HINT = "for a sequence write: A then B"

_SYMBOLS = (
    ("==", "'=' compares: write a single '='"),
    ("<>", "write '!=' for 'not equal'"),
    ("=>", "write '>=' for 'at least'"),
    ("=<", "write '<=' for 'at most'"),
    ("=!", "write '!=' for 'not equal'"),
    ("->", _THEN_HINT),
    ("→", _THEN_HINT),
    ("&&", "write 'and'"),
    ("&", "write 'and'"),
    ("||", "write 'or'"),
    ("|", "write 'or'"),
    ("!", "write 'not' before a predicate, and '!=' between values"),
    ("≤", "write '<='"),
    ("≥", "write '>='"),
    ("≠", "write '!='"),
    ("//", "a comment begins with '#'"),
    ("/*", "a comment begins with '#'"),
    (";", "no mark ends a subscription; give each a name, as in: rising: A then B"),
    (",", "join predicates by 'and'"),
    ("%", "there is no remainder; the operators are + - * /"),
    ("^", "there is no power; the operators are + - * /"),
    (":", "a name and ':' stand only at the beginning of a subscription"),
    ("{", "group with parentheses ( )"),
    ("[", "the instance stands right after the topic, as in: T[2].a"),
)
"""Symbols, longest first where one begins another."""

_WORDS = {
    "followed": _THEN_HINT,
    "followedby": _THEN_HINT,
    "next": _THEN_HINT,
    "seq": "for a sequence write: A then B",
    "select": _SQL_HINT,
    "where": _SQL_HINT,
    "from": _SQL_HINT,
    "having": _SQL_HINT,
    "pattern": _SQL_HINT,
    "every": "every match is delivered; leave 'every' out",
    "is": _NULL_HINT,
    "null": _NULL_HINT,
    "none": _NULL_HINT,
    "nil": _NULL_HINT,
    "in": "write A.x = 1 or A.x = 2",
    "between": "write A.x >= 1 and A.x <= 9",
    "like": "there are no patterns on strings; compare them with = or <",
    "xor": "write (P and not Q) or (Q and not P)",
    "group": "write 'partition by'",
    "by": "write 'partition by'",
}
"""Words of other languages, in lower case."""

_WORD = re.compile(r"[^\W\d]\w*")


def explain_token(text: str, at: int) -> tuple[int, str, str]:
    """Where the slip at an unexpected token begins, what was found, and a hint (or "")."""
    for back in (1, 0):  # of '==' the parser stops at the second sign
        for symbol, hint in _SYMBOLS:
            if len(symbol) > back and at >= back and text.startswith(symbol, at - back):
                if back and len(symbol) == 1:
                    continue
                return at - back, symbol, hint
    word = _WORD.match(text, at)
    if word:
        return at, word.group(), _word_hint(text, at, word.group())
    if text.startswith("(", at):
        return at, "(", _call_hint(text, at)
    return at, _piece(text, at), ""


def _piece(text: str, at: int) -> str:
    """The characters up to the next space, cut short."""
    found = re.compile(r"\w+|\S").match(text, at)
    return found.group()[:40] if found else text[at : at + 1]


def _word_hint(text: str, at: int, word: str) -> str:
    lower = word.lower()
    before = text[max(0, at - 80) : at].rstrip()
    if re.search(r"(?<![\w.`])\d+(\.\d+)?\Z", before) and lower not in KEYWORDS:
        near = suggestion(word, UNITS, cutoff=0.75)
        if near or not suggestion(word, KEYWORDS, cutoff=0.75):  # else rather a clause misspelt
            return f"{near or f'{word!r} is not a unit of time'}; {UNIT_HINT}"
    if lower in KEYWORDS and word != lower:
        return f"keywords are lower case: write '{lower}'"
    if lower in _WORDS:
        return _WORDS[lower]
    earlier = re.search(r"[^\W\d]\w*\Z", before)
    if earlier and earlier.group() != earlier.group().lower() in KEYWORDS:
        return f"keywords are lower case: write '{earlier.group().lower()}'"
    for start in _WORD.finditer(text[:200]):
        if start.group().lower() in ("select", "pattern", "every"):
            return _WORDS[start.group().lower()]
        break
    return suggestion(word, KEYWORDS, cutoff=0.75)


def _call_hint(text: str, at: int) -> str:
    name = re.search(r"([^\W\d]\w*)\s*\Z", text[max(0, at - 80) : at])
    if name is None:
        return ""
    word = name.group(1)
    if word.lower() in ("and", "or", "not"):
        return f"keywords are lower case: write '{word.lower()}'"
    if word.lower() in _WORDS:
        return _WORDS[word.lower()]
    return f"there are no functions; '{word}' is read as a topic"


def explain_character(text: str, at: int) -> tuple[str, str]:
    """What is wrong with a character that begins no token: a sentence and a hint."""
    character = text[at]
    if character in "\"'":
        return (
            "the string that begins here has no end",
            f"close it with {character} on the same line; write \\n for a new line",
        )
    if character == "`":
        return "the name that begins here has no end", "close it with another backtick"
    if character in "\u201c\u201d\u201e\u201f\u00ab\u00bb":
        return f"found {character}, a curly quote", 'write strings in straight quotes: "ACME"'
    if character in "\u2018\u2019\u201a\u201b\u00b4":
        return f"found {character}, a curly quote", "write strings in straight quotes: 'ACME'"
    _, found, hint = explain_token(text, at)
    if character in "\u2013\u2014\u2212":
        hint = "write '-' for minus"
    return f"found '{found}'", hint


def slot_as_value(slot: Slot, *, minus: bool) -> str:
    """A hint for a topic that stands where a value is needed."""
    lower = slot.topic.lower()
    if lower in ("null", "none", "nil", "undefined", "nan"):
        return _NULL_HINT
    if lower in ("true", "false"):
        return f"write '{lower}' in lower case"
    hint = f"name an attribute of it, as in: {quoted(slot.topic)}.value"
    return hint + "; a name with '-' in it goes into backticks: `a-b`" if minus else hint


# --- what was expected ----------------------------------------------------------------------------

_EXPECTED = (
    ({"NOT"}, "a predicate (a topic or a comparison)"),
    ({"STRING"}, "a value (an attribute, number, string or duration)"),
    ({"LABEL"}, "a subscription's name"),
    ({"COMPARE"}, "a comparison"),
    ({"THEN"}, "'then'"),
    ({"AND"}, "'and'"),
    ({"OR"}, "'or'"),
    ({"RPAR"}, "')'"),
    ({"LPAR"}, "'('"),
    ({"RSQB"}, "']'"),
    ({"BY"}, "'by'"),
    ({"COMMA"}, "','"),
    ({"INT"}, "a whole number"),
    ({"DURATION"}, "a duration such as 5 min"),
    ({"WITHIN"}, "a clause such as 'within 5 min'"),
    ({"NAME"}, "a name"),
    ({"EQUAL"}, "'='"),
    ({"$END"}, "the end of the text"),
)
_IMPLIED = {
    "a predicate (a topic or a comparison)": {"STRING", "LPAR", "INT", "DURATION", "NAME", "LABEL"},
    "a value (an attribute, number, string or duration)": {"LPAR", "INT", "DURATION", "NAME"},
    "a comparison": {"EQUAL"},
}


def expected_words(accepted: AbstractSet[str]) -> str:
    """What the parser would have accepted, in words."""
    left = set(accepted)
    found: list[str] = []
    for terminals, words in _EXPECTED:
        if terminals & left:
            found.append(words)
            left -= _IMPLIED.get(words, set())
    if len(found) < 2:
        return "".join(found)
    return ", ".join(found[:-1]) + " or " + found[-1]
