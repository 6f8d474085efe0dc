"""Every refusal of a text: where it points, what it says and what it suggests."""

from __future__ import annotations

import pytest

from concordant.errors import UsageError
from concordant.language import parse


def refused(text: str, **options: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse(text, **options)
    return caught.value


def test_an_error_has_place_expectation_caret_and_hint():
    error = refused("rising:\n  A.x == 5", place="my.sub")
    assert str(error) == (
        "my.sub:2:7: found '==', expected a value (an attribute, number, string or duration)\n"
        "      A.x == 5\n"
        "          ^\n"
        "  try: '=' compares: write a single '='"
    )


def test_the_caret_stands_right_below_tabs_and_in_long_lines():
    assert refused("\tA.x\t=== 5").message.splitlines()[1:] == [
        "    \tA.x\t=== 5",
        "    \t   \t^",
    ]
    shown, caret = refused("A.x > 1 and " * 50 + "A.x <> 1").message.splitlines()[1:]
    assert len(shown) < 110
    assert shown[caret.index("^")] == "<"


def test_the_caret_stands_below_the_column_of_the_place():
    error = refused("A.x > 1 and B.y = = 2")
    column = int(error.place.split(":")[1])
    assert error.message.splitlines()[2].index("^") == column - 1 + 4


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("A.x == 5", "1:5", "found '=='", "single '='"),
        ("A.x <> 5", "1:5", "found '<>'", "'!='"),
        ("A.x => 5", "1:5", "found '=>'", "'>='"),
        ("A.x = 1 && B", "1:9", "found '&&', expected 'and', 'or', a clause", "write 'and'"),
        ("A || B", "1:3", "found '||'", "write 'or'"),
        ("A AND B", "1:3", "found 'AND'", "write 'and'"),
        ("A OR B", "1:3", "found 'OR'", "write 'or'"),
        ("!A.x = 1", "1:1", "found '!'", "write 'not'"),
        ("NOT A.x = 1", "1:5", "found 'A'", "write 'not'"),
        ("NOT (A.x = 1)", "1:5", "found '('", "write 'not'"),
        ("T[0].x = 1", "1:3", "instances count from 1", "T[1]"),
        ("T[x].x = 1", "1:3", "found 'x', expected a whole number", "from 1"),
        ("T[-1].x = 1", "1:3", "found '-', expected a whole number", "from 1"),
        ("T[65]", "1:3", "at most 64 instances", "T[1] to T[i-1]"),
        ("A.x[2] > 1", "1:4", "found '['", "right after the topic"),
        ("A -> B", "1:3", "found '->'", "A then B"),
        ("A followed by B", "1:3", "found 'followed'", "A then B"),
        ("SEQ(A, B)", "1:4", "found '('", "A then B"),
        ("A.x > avg(B.x)", "1:10", "found '('", "no functions"),
        ("SELECT x FROM A", "1:8", "found 'x'", "no SELECT or WHERE"),
        ("A WHERE A.x > 1", "1:3", "found 'WHERE'", "no SELECT or WHERE"),
        ('A.x = "abc', "1:7", "the string that begins here has no end", 'close it with "'),
        ("A.x = 'abc\nand B'", "1:7", "the string that begins here has no end", "close it with '"),
        ("`abc", "1:1", "the name that begins here has no end", "backtick"),
        ("A.x = \u201cabc\u201d", "1:7", "a curly quote", "straight quotes"),
        ("A.x = \u2018abc\u2019", "1:7", "a curly quote", "straight quotes"),
        ("A.x = 'a\\q'", "1:7", "'\\q' is not an escape", "\\\\ for a backslash"),
        ("A.x = null", "1:7", "'null' is a topic", "predicate on null is always false"),
        ("A.x is not null", "1:5", "found 'is'", "predicate on null is always false"),
        ("A.x = TRUE", "1:7", "'TRUE' is a topic", "'true' in lower case"),
        ("A.x in (1, 2)", "1:5", "found 'in'", "A.x = 1 or A.x = 2"),
        ("A within 5", "1:10", "found '5' without a unit of time", "5 min"),
        ("A within 5 cap 3", "1:10", "found '5' without a unit of time", "5 min"),
        ("A within 5 weeks", "1:10", "found '5 weeks'", "the units are"),
        ("A within soon", "1:10", "found 'soon', expected a duration", "the units are"),
        ("A within", "1:9", "found the end of the text, expected a duration", ""),
        ("A within 0.1 us", "1:10", "not a whole number of microseconds", "1 us"),
        ("A within 99999999999 days", "1:10", "does not fit in 64 bits", ""),
        ("A.time - B.time < 5 weeks", "1:21", "found 'weeks'", "'weeks' is not a unit of time"),
        ("A.time - B.time < 5 MIN", "1:21", "found 'MIN'", "did you mean 'min'"),
        ("A WITHIN 5 min", "1:3", "found 'WITHIN'", "write 'within'"),
        ("A.x > 1 wihtin 5 min", "1:9", "found 'wihtin'", "did you mean 'within'"),
        ("A withn 5 min", "1:3", "found 'withn'", "did you mean 'within'"),
        ("A match frist", "1:9", "'frist' is not a matching policy", "did you mean 'first'"),
        ("A match first contigous", "1:15", "'contigous' is not part", "did you mean 'contiguous'"),
        ("A match first staged staged", "1:22", "'match' says 'staged' twice", "once"),
        ("A match FRC contiguous", "1:13", "'match' says 'contiguous' twice", "once"),
        ("A match first and B", "1:15", "found 'and' after a clause", "formula comes first"),
        ("A consume prefixes", "1:11", "not a consumption policy", "did you mean 'prefix'"),
        ("A order totl", "1:9", "not an order level", "did you mean 'total'"),
        ("A order strict", "1:9", "not an order level", "total"),
        ("A partition symbol", "1:13", "found 'symbol', expected 'by'", ""),
        ("A partition by k, k", "1:3", "names an attribute twice", "once"),
        ("A partition by position", "1:3", "partition of its own", ""),
        ("A cap some 5", "1:7", "expected a number or 'all'", "cap all"),
        ("A[3] cap 2", "1:6", "'cap 2' is smaller than the largest instance", "cap 3"),
        ("A cap all 0", "1:3", "'cap all' must be at least 1", ""),
        ("A emit X(a = B.y)", "1:3", "'emit' reads B[1]", ""),
        ("A emit X(a = A)", "1:14", "'A' is a topic", "A.value"),
        ("A emit X(a = A.x > 1)", "1:14", "a predicate cannot be the value of an attribute", ""),
        ("A emit X(a = 1, a = 2)", "1:3", "gives the attribute 'a' twice", "once"),
        ("A emit X(time = 1)", "1:3", "a name that every event has already", "another name"),
        ("A emit X", "1:9", "found the end of the text, expected '('", ""),
        ("A match first match recent", "1:15", "the clause 'match' is given twice", "once"),
        ("A cap 5 within 1 s cap 6", "1:20", "the clause 'cap' is given twice", "once"),
        ("A.x < B.x < C.x", "1:11", "cannot be chained", "A[1].x < B[1].x and B[1].x < C[1].x"),
        ("A then B < C", "1:10", "cannot stand in one chain", "'then' joins topics"),
        ("(A then B) then C", "1:2", "'then' joins topics", "no parentheses"),
        ("A then B.x", "1:8", "'B[1].x' is a value", "leave the attribute out"),
        ("A then A", "1:1", "puts an event before itself", "A[1] then A[2]"),
        ("true", "1:1", "'true' alone is not a predicate", "comparison"),
        ("A and true", "1:7", "'true' cannot be joined by 'and'", "comparison"),
        ("A and A.x + 3", "1:7", "a number cannot be joined by 'and'", "A[1].x + 3 > 0"),
        ("A or 3", "1:6", "a number cannot be joined by 'or'", ""),
        ("not 3", "1:5", "a number cannot be negated by 'not'", ""),
        ("A.x", "1:1", "A[1].x is an attribute; it alone is not a predicate", "= true"),
        ("(A and B) > 3", "1:2", "a predicate cannot be compared by '>'", "'and'"),
        ("A.x + (B and C) > 3", "1:8", "a predicate cannot be part of arithmetic", ""),
        ("A > 3", "1:1", "'A' is a topic; it cannot be compared by '>'", "A.value"),
        ("stock-quotes.x > 1", "1:1", "'stock' is a topic", "backticks"),
        ("A.x + 'abc' > 3", "1:7", '"abc" is a string', "quotes"),
        ("true * A.x > 3", "1:1", "true is a bool", ""),
        ("not A", "1:1", "absence of an event", "negate a comparison"),
        ("A and not (B and C.x = 1)", "1:1", "'not B[1]' asks for the absence", ""),
        ("A.x < A.x", "1:1", "compares an attribute with itself", "A[1].x < A[2].x"),
        ("A.x + B.x < C.x", "1:1", "names 3 slots", "two slots each"),
        ("1 < 2", "1:1", "names no event", ""),
        ("A.x > 1 / 0", "1:1", "has no value", ""),
        ("A.x > 9223372036854775808", "1:7", "does not fit in 64 bits", "1e19"),
        ("A.x > " + "9" * 5_000, "1:7", "does not fit in 64 bits", "1e19"),
        ("A.x > 1e999", "1:7", "not a finite number", ""),
        ("(A", "1:3", "found the end of the text", "'(' is still open"),
        ("A)", "1:2", "found ')'", ""),
        ("A.x >", "1:6", "found the end of the text, expected a value", ""),
        ("A and", "1:6", "expected a predicate", ""),
        ("A B", "1:3", "found 'B'", ""),
        ("A; B", "1:2", "found ';'", "give each a name"),
        ("A // comment", "1:3", "found '//'", "'#'"),
        ("A\nb: B", "2:1", "found the name 'b:'", "a name for each"),
        ("a: A\nb: B\na: C", "3:1", "the name 'a' is used twice", "of its own"),
        ("a:", "1:3", "found the end of the text, expected a predicate", ""),
        ("", "1:1", "the text holds no subscription", "Order then Payment"),
        (" # nothing\n\n", "1:1", "the text holds no subscription", "Order then Payment"),
    ],
)
def test_a_slip_is_explained_where_it_stands(text: str, place: str, message: str, hint: str):
    error = refused(text)
    assert error.place == place
    assert message in error.message.splitlines()[0]
    assert hint in error.hint
