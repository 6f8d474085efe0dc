"""CSV files and readers of every odd kind, from a seed: workers must read them as Spark does.

A case is what a reader of Spark is given: files, a schema, options, and settings of the session.
Most options are left as they are, or workers would read none of the files.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from concordant.spark.asked import ask
from concordant.spark.csv import integer_of
from concordant.spark.readable import Scan


def _listed(text: str) -> list[str]:
    return text.split("|")


CELLS = {
    "bigint": _listed(
        "0|-0|7|+7|007|-12|1234567|12345678|123456789|1772443800001000|999999999999999999|"
        "1000000000000000000|9223372036854775807|9223372036854775808|-9223372036854775808|"
        "-9223372036854775809|1.0|1.|1e3|1d|0x10|1_000|-|+|--1| 7|7 |\u00a07|٣|12٣|𝟗|1234567a|"
        "12345678a|12345678/|1234567:|| |null|NaN|12 34|１２|7\t|7\x01|12345678\x0b9|"
        "00000000000000000000000000000000000000000000000000007|-00000000000000000000|"
        "123456789012345678901234567890"
    ),
    "double": _listed(
        "0|-0|-0.0|1.5|162.26|-3.25|0.1|123456789012345|0.000000000000001|1234567890123456|"
        "12345678.12345678|9007199254740993|0.30000000000000004|1e5|1E-5|1e400|-1e400|4.9e-324|"
        "2.2250738585072014e-308|1.|.5|-.5|.|+2|1d|1f|1.5D|1.5F|0x1p3|0x.8p1|0x1p9999|0x1|NaN|"
        "-NaN|+NaN|Inf|-Inf|+Inf|Infinity|-Infinity|+Infinity|nan|inf| 1.5|1.5 |\u00a01|1,5|"
        "1_0|| |abc|1e|1e+|--1|٣|1.5.5|12345678.|3.14159265358979|1dd|f|1e5f|0X1P-2d|\t1.5|1.5\t|"
        "1\x015|-0d|-.0|0.1234567890123456|9007199254740992.5|1.7976931348623157e308|"
        "1.7976931348623159e308|2.4703282292062327e-324|2.4703282292062328e-324|"
        "000000000000000000000001.5|1.500000000000000000000000000000001|0x1.fffffffffffff8p0"
    ),
    "boolean": _listed("true|false|True|FALSE|tRuE|1|0|yes|| true|true |t|falſe|FALſE|falsſ"),
    "string": _listed(
        "a|A b| ||ä|日本|null|NULL|'x'|a\\b|#x| lead|trail |éééééééééé|\\|\\\\|/|a\\,b"
    ),
    "int": _listed("2147483647|2147483648|-2147483648|-2147483649|5|x|+5|"),
    "smallint": _listed("32767|32768|-32768|-32769|5|"),
    "tinyint": _listed("127|128|-128|-129|5|"),
}

CHARACTERS = {
    "bigint": "0123456789+-. \t\x01\x0b\x0c\x1f٣",
    "double": "0123456789+-.eEdDfFxXpPINaninfty \t\x01\x0b\x0c",
    "boolean": "trueTRUEfalseFALSEſ \t",
    "string": "ab\\ '#~\t\x01\x0b\x85\u2028\ufeffäß日𝟗",
    "int": "0123456789+-\t\x01",
    "smallint": "0123+-\t\x01",
    "tinyint": "0123+-\t",
}
"""What cells might be made of."""

TIMES = _listed(
    "2026-03-02T09:00:00Z|2026-03-02 09:00:00.5Z|1969-12-31T23:59:59.999999Z|"
    "2026-03-02T09:00:00+01:00|2026-03-02T09:00:00.000001-11:30|"
)
ODD_TIMES = _listed("2026-03-02|2026-03-02T09:00Z|2026-03-02T09:00:00|2026-03-02 09|now|7|epoch|x")

OPTIONS: dict[str, list[Any]] = {
    "sep": [";", "|", "\t", "\\t", "||", ";", ":", "\u00b7", " "],
    "delimiter": [";"],
    "quote": ["'", "", "\0", '"'],
    "escape": ['"', "/", "\\"],
    "charToEscapeQuoteEscaping": ["\\"],
    "comment": ["#", "-"],
    "nullValue": ["null", "0", "NULL"],
    "emptyValue": ["empty"],
    "nanValue": ["nan"],
    "positiveInf": ["Infinity"],
    "negativeInf": ["-Infinity"],
    "mode": ["PERMISSIVE", "DROPMALFORMED", "permissive"],
    "lineSep": ["\n", ";", "\r\n"],
    "encoding": ["UTF-8", "utf-8", "ISO-8859-1", "UTF-16LE"],
    "enforceSchema": [True, False],
    "inferSchema": [True],
    "ignoreLeadingWhiteSpace": [True, False],
    "ignoreTrailingWhiteSpace": [True, False],
    "timestampFormat": ["yyyy-MM-dd'T'HH:mm:ssXXX", "dd.MM.yyyy HH:mm"],
    "dateFormat": ["dd.MM.yyyy"],
    "locale": ["de-DE"],
    "timeZone": ["Asia/Tokyo"],
    "maxColumns": [3, 100],
    "maxCharsPerColumn": [4, 100],
    "multiLine": [True, False],
    "unescapedQuoteHandling": ["RAISE_ERROR"],
    "columnNameOfCorruptRecord": ["c0"],
    "samplingRatio": [0.5],
    "pathGlobFilter": ["*0.csv"],
    "recursiveFileLookup": [True],
    "columnPruning": [False],
}
"""Options of the reader, and values of each."""

SETTINGS: dict[str, list[str]] = {
    "spark.sql.legacy.timeParserPolicy": ["LEGACY", "CORRECTED", "EXCEPTION"],
    "spark.sql.session.timeZone": ["America/New_York", "Etc/UTC", "UTC"],
    "spark.sql.csv.parser.columnPruning.enabled": ["false"],
    "spark.sql.csv.filterPushdown.enabled": ["false"],
    "spark.sql.ansi.enabled": ["false"],
    "spark.sql.caseSensitive": ["true"],
    "spark.sql.columnNameOfCorruptRecord": ["c0"],
    "spark.sql.files.maxPartitionBytes": ["1000b"],
}
"""Settings of the session, and values of each."""

_EVENT = (("topic", "string"), ("source", "string"), ("seq", "bigint"), ("time", "bigint"))
_TIME_TYPES = ("bigint", "bigint", "string", "timestamp", "timestamp", "int", "timestamp_ntz")
_MORE_TYPES = ("float", "date", "timestamp", "decimal(10,2)", "binary")


_ODD_LINES = ("", " ", "\t", "#", "\x01", "\ufeff", "\u00a0")
_ODD_BYTES = (b"\r", b'"', b'""', b"\0", b"\xff", b"\n\r")

_TIME_LENGTH_MAX = 16
"""Longer integers may be beyond what Python has for a time, though not beyond us."""


@dataclass(frozen=True)
class OddCsv:
    """What a reader is given."""

    paths: tuple[str, ...]
    schema: str
    options: dict[str, Any]
    settings: dict[str, str]

    @contextmanager
    def session(self, spark: Any) -> Iterator[None]:
        """Within this, the settings hold."""
        before = {name: spark.conf.get(name, None) for name in self.settings}
        try:
            for name, value in self.settings.items():
                spark.conf.set(name, value)
            yield
        finally:
            for name, value in before.items():
                spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def drawn_cell(rng: Random, kind: str) -> str:
    """A cell of any characters, or a known one with some of them changed."""
    drawn = rng.choices(CHARACTERS[kind], k=rng.choice([0, 1, 2, 3, 5, 9, 17, 20]))
    if rng.random() < 0.5:
        drawn = list(rng.choice(CELLS[kind]))
        for _ in range(rng.randint(0, 2)):
            place = rng.randint(0, len(drawn))
            drawn[place : place + rng.randint(0, 1)] = rng.choice(CHARACTERS[kind])
    return "".join(drawn)


def odd_csv(rng: Random, folder: Path) -> OddCsv:
    """A case, its files written into a folder."""
    types = dict(_EVENT) | {"time": rng.choice(_TIME_TYPES)}
    kinds = [*CELLS, rng.choice(_MORE_TYPES)] if rng.random() < 0.1 else list(CELLS)
    types |= {f"c{n}": rng.choice(kinds) for n in range(rng.randint(0, 5))}
    options: dict[str, Any] = {}
    if rng.random() < 0.5:
        options["header"] = rng.choice([True, False, "TRUE"])
    while rng.random() < 0.3:
        name = rng.choice(list(OPTIONS))
        options[name] = rng.choice(OPTIONS[name])
    settings: dict[str, str] = {}
    while rng.random() < 0.3:
        name = rng.choice(list(SETTINGS))
        settings[name] = rng.choice(SETTINGS[name])
    paths = []
    for number in range(rng.choice([1, 1, 2])):
        path = folder / f"{number}.csv"
        path.write_bytes(_file(rng, types, options, 1_000 * number))
        paths.append(str(path))
    if rng.random() < 0.1:
        paths.append(paths[0])
    schema = ", ".join(f"{name} {kind}" for name, kind in types.items())
    return OddCsv(tuple(paths), schema, options, settings)


def _file(rng: Random, types: dict[str, str], options: dict[str, Any], first: int) -> bytes:
    """Lines whose events are numbered from the first: no event is another with other cells."""
    separator = str(options.get("sep", options.get("delimiter", ",")))
    separator = "\t" if separator == "\\t" else separator
    lines = []
    if rng.random() < 0.1:
        lines += ["", "  "][: rng.randint(1, 2)]
    if options.get("header") or rng.random() < 0.1:
        names = [*types, *(["more"] if rng.random() < 0.2 else [])]
        lines.append(separator.join(names[: rng.choice([None, None, 2])]))
    odd = rng.random() < 0.2
    for number in range(first, first + rng.choice([0, 1, 30, 100])):
        cells = [_cell(rng, name, kind, number, odd) for name, kind in types.items()]
        if rng.random() < 0.9:
            cells = [cell.replace(separator, "") for cell in cells]
        if rng.random() < 0.05:
            cells = cells[: rng.randint(1, len(cells))]
        elif rng.random() < 0.05:
            cells += ["more"] * rng.randint(1, 3)
        lines.append(separator.join(cells))
        if rng.random() < 0.03:
            lines.append(
                rng.choice(["", " ", "\t", "#", "\x01", "\ufeff", "\u00a0", separator * 3])
            )
    end = rng.choice(["\n", "\n", "\n", "\r\n"])
    text = end.join(lines) + rng.choice(["", end, end * 2])
    data = text.encode("utf-16-le" if options.get("encoding") == "UTF-16LE" else "utf-8")
    if rng.random() < 0.03:
        data = codecs.BOM_UTF8 + data
    if data and rng.random() < 0.1:
        place = rng.randrange(len(data))
        data = (
            data[:place] + rng.choice([b"\r", b'"', b'""', b"\0", b"\xff", b"\n\r"]) + data[place:]
        )
    return data


def _cell(rng: Random, name: str, kind: str, number: int, odd: bool) -> str:
    plain = rng.random() < 0.9
    if name == "topic":
        return "A" if plain else rng.choice(["", "B", " A", "a", "A "])
    if name == "source":
        return rng.choice(["x", "y"]) if plain else drawn_cell(rng, "string")
    if name == "seq":
        drawn = drawn_cell(rng, "bigint")
        return str(number) if plain or integer_of(drawn) is not None else drawn
    if kind in ("timestamp", "timestamp_ntz") or (name == "time" and kind == "string"):
        return rng.choice(ODD_TIMES if odd and not plain else TIMES)
    if name == "time":
        drawn = str(rng.randrange(1_000)) if plain else drawn_cell(rng, kind)
        return drawn if len(drawn) <= _TIME_LENGTH_MAX else "7"
    return drawn_cell(rng, kind if kind in CELLS else "double")


def compared(spark: Any, case: OddCsv) -> tuple[str, int, list[str]]:
    """Why Spark reads a case, or nothing where workers do; how many rows, and where they differ."""
    with case.session(spark):
        frame = spark.read.options(**case.options).schema(case.schema).csv(list(case.paths))
        asked = ask(frame, "A", attributes="*", bad="skip")
        found = asked.reader("auto")
        if not isinstance(found, Scan):
            return found, 0, []
        told = {}
        for scan in ("jvm", "worker"):
            rows = asked.answers(scan).toArrow().to_pylist()
            told[scan] = sorted(str(row) for row in rows if row["what"] != "counts")
    more = sorted(set(told["worker"]) ^ set(told["jvm"]))
    if not more and told["worker"] != told["jvm"]:
        more = [f"{len(told['worker'])} rows by workers, {len(told['jvm'])} by Spark"]
    return "", len(told["jvm"]), more
