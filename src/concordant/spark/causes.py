"""What went wrong on Spark in one sentence: from the causes that it names to words of ours.

Spark tells a failure as a chain of exceptions, or on its way up in a log. Here is what the usual
ones mean to whoever wrote the pipeline, and what to try; of others the innermost message is told,
without names of classes. Pure: it gets texts and asks no JVM.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote


class Sentence(NamedTuple):
    """What happened, and what to try."""

    message: str
    hint: str = ""
    place: str = ""
    """The file that it is about, where the caller's input is to blame."""
    is_usage: bool = False
    """Is it what the caller gave?"""


class _Rule(NamedTuple):
    pattern: re.Pattern[str]
    message: str
    hint: str = ""
    place: str = ""
    is_usage: bool = False


def _rule(
    pattern: str, message: str, hint: str = "", *, place: str = "", is_usage: bool = False
) -> _Rule:
    return _Rule(re.compile(pattern, re.DOTALL), message, hint, place, is_usage)


_PATH = r"(?:file:/*(?=/))?(?P<path>[^\s,)]+)"
_GO_ON = "a stream goes on where it was when it is run again"

_RULES = (
    _rule(
        r"CSV header does not conform to the schema\.\s+Header: (?P<header>[^\n]*)\s+Schema: [^\n]*"
        rf"\s+Expected: (?P<wanted>[^\n]*) but found: (?P<found>[^\n]*)\s+CSV file: {_PATH}",
        "the header names a column '{found}' where '{wanted}' is expected",
        "name the columns in 'fields' in the order of the file ({header}); files with another "
        "header are a source of their own",
        place="{path}",
        is_usage=True,
    ),
    _rule(
        r"Number of column in CSV header is not equal.*Header length: (?P<found>\d+), schema size: "
        rf"(?P<wanted>\d+)\s+CSV file: {_PATH}",
        "the header has {found} columns, and {wanted} are expected",
        "name all columns of the file in 'fields'; look at 'separator', too",
        place="{path}",
        is_usage=True,
    ),
    _rule(
        rf"FILE_NOT_EXIST\] Encountered error while reading file {_PATH}\.\s",
        "the file {path} is gone: it was there when the run began",
        f"put it back; {_GO_ON}",
    ),
    _rule(
        rf"reading file {_PATH}\.\s.*Parquet column \[(?P<column>[^\]]*)\]\. Expected Spark type "
        r"(?P<wanted>\w+), actual Parquet type (?P<found>\w+)",
        "the column '{column}' is stored as {found}, and {wanted} is expected",
        "correct 'fields', or give files with another schema a source of their own",
        place="{path}",
        is_usage=True,
    ),
    _rule(
        rf"{_PATH} is not a Parquet file",
        "the file {path} is no Parquet file, or a damaged one",
        f"repair or remove it; {_GO_ON}",
    ),
    _rule(
        r"\[PATH_NOT_FOUND\] Path does not exist: (?:file:)?(?P<path>.+?)\. ",
        "there is nothing at {path}",
        "check the path",
        is_usage=True,
    ),
    _rule(
        r"(?:No space left on device|Disk quota exceeded)(?:: '(?P<path>[^']*)')?",
        "no space is left on the disk {path}",
        f"make room, also for spark.local.dir; {_GO_ON}",
    ),
    _rule(
        r"(?:Permission denied:? '(?P<path>[^']+)'"
        rf"|{_PATH.replace('path', 'other')} \(Permission denied\)|Permission denied)",
        "there is no permission for {path}{other}",
        "check who may read the source and write the output and the checkpoint",
    ),
    _rule(
        rf"(?:Mkdirs failed to create|Parent path is not a directory:) {_PATH}",
        "the folder {path} cannot be made or written to",
        "check the path of the sink, and who may write there",
    ),
    _rule(
        r"(?:Read-only file system)(?:: '(?P<path>[^']*)')?",
        "nothing can be written there: the file system is read-only {path}",
        "give another path",
    ),
    _rule(
        r"The value '(?P<value>[^']*)' in the config \"(?P<key>[^\"]*)\" is invalid\. "
        r"(?P<rest>[^\n]*?)(?: SQLSTATE.*)?$",
        "Spark's option {key} = '{value}' is wrong",
        "correct it under [spark.options]",
        is_usage=True,
    ),
    _rule(
        r"Invalid (?:maximum|initial) heap size: -Xm.(?P<value>\S+)",
        "Spark's option spark.driver.memory = '{value}' is wrong",
        'spark.driver.memory = "2g"',
        is_usage=True,
    ),
    _rule(
        r"Executor (?P<what>cores|memory) must be (?P<rule>[^\n]+)",
        "Spark's option spark.executor.{what} must be {rule}",
        "correct it under [spark.options]",
        is_usage=True,
    ),
    _rule(
        r"Could not parse Master URL: '(?P<master>[^']*)'",
        "'{master}' is no master of Spark",
        "local[*], spark://host:7077, or sc://host for Spark Connect",
        is_usage=True,
    ),
    _rule(
        r"(?:Failed to connect to /?(?P<where>\S+:\d+).*)?All masters are unresponsive",
        "the master of Spark at {where} does not answer",
        "start it, or check [spark] master",
    ),
    _rule(
        r"Failed to bind to /?\S+?:(?P<port>\d+)|Address already in use",
        "a port that Spark wants is in use: {port}",
        "end what uses it, or give another one under [spark.options], such as spark.ui.port",
    ),
    _rule(
        r"/java: No such file|java: (?:command )?not found|JAVA_HOME is not set|‘?bash’?: No such",
        "there is no Java",
        "install Java 17 or 21, and set JAVA_HOME to where it lies",
    ),
    _rule(
        r"UnsupportedClassVersionError|class file version",
        "the Java that was found is too old",
        "install Java 17 or 21, and set JAVA_HOME to where it lies",
    ),
    _rule(
        r"OutOfMemoryError|(?m:^MemoryError)",
        "the memory does not suffice",
        "give Spark more (spark.driver.memory on a local master, spark.executor.memory on a "
        "cluster), or smaller micro-batches",
    ),
    _rule(
        r"Python worker exited unexpectedly|Connection reset.*PythonRunner",
        "a Python worker died, most often because the system had no memory left",
        'use fewer cores (master = "local[2]"), or smaller micro-batches',
    ),
    _rule(
        r"No resolvable bootstrap urls|Couldn't resolve server (?P<host>\S+)",
        "the servers of Kafka are unknown hosts",
        'check servers = "host:9092"',
    ),
    _rule(
        r"UnknownTopicOrPartition|does not host this topic-partition|topic.*?not present in meta",
        "Kafka has no such topic",
        "check kafka_topic, and that the topic was made",
    ),
    _rule(
        r"waiting for a node assignment|kafka\.common\.errors\.(?:Timeout|Disconnect)Exception"
        r"|Timed out waiting to get (?:end )?offsets|Failed to update metadata after",
        "Kafka does not answer",
        "check servers, and that the broker is running",
    ),
    _rule(
        r"Some data may have been lost because they are not available in Kafka any more",
        "Kafka has removed messages that were not read yet, or the topic was made anew",
        "start from an empty checkpoint, and keep messages longer",
    ),
    _rule(
        r"There are \[(?P<before>\d+)\] sources in the checkpoint.*?now there are \[(?P<now>\d+)\]",
        "the checkpoint was begun with {before} sources, and now there are {now}",
        "go on with the sources as they were, or give another checkpoint folder",
        is_usage=True,
    ),
    _rule(
        r"MappingException|No usable value for|Incomplete log file|malformed offset|"
        r"Log file was malformed|UnsupportedLogVersion",
        "the checkpoint is damaged, or belongs to other sources",
        "give another checkpoint folder",
        is_usage=True,
    ),
    _rule(
        rf"Encountered error while reading file {_PATH}\.\s.*\n(?P<why>[^\n]+)\n*$",
        "the file {path} cannot be read: {why}",
        f"repair or remove it; {_GO_ON}",
    ),
)
"""In this order: what is special comes before what it may be a part of."""

_CLASS = re.compile(r"\b(?:(?:[a-z_]\w*\.){2,}|(?:java|org|scala)\.)[A-Z][\w$]*(?:: ?)?")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*|\s*SQLSTATE: \w+")
_WRAPPING = re.compile(
    r"^An error occurred while calling \S+$|^Query \[[^\]]*\] terminated with exception:|^: "
    r"|^Job aborted due to stage failure: .*?\(TID \d+\) \([^)]*\):"
    r"|^Exception thrown in awaitResult:?"
)
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*(\w*(?:Error|Violation|Exception|Failed))(?:: (.+))?$")
_FATAL = re.compile(
    r"^(?:Exception in thread \"\w+\"|Caused by:|Error:|\S+ \S+ ERROR \w+:"
    r"|(?=(?:\w+\.)+\w+Exception: ))\s*"
)
_LENGTH_MAX = 300


def sentence(messages: Sequence[str]) -> Sentence:
    """The sentence for the messages of a chain of causes, outermost first."""
    text = "\n".join(messages)
    for rule in _RULES:
        found = rule.pattern.search(text)
        if found:
            parts = {name: part or "" for name, part in found.groupdict().items()}
            if "why" in parts:
                parts["why"] = innermost([parts["why"]])
            known = {name: _path(part) for name, part in parts.items()}
            return Sentence(
                re.sub(r"[ :]+$", "", rule.message.format(**known)),
                rule.hint.format(**known),
                rule.place.format(**known),
                rule.is_usage,
            )
    return Sentence(innermost(messages))


def innermost(messages: Sequence[str]) -> str:
    """The last message of a chain that says something, without the names of classes."""
    for message in reversed(messages):
        lines = [line.strip() for line in message.splitlines() if line.strip()]
        if "Traceback (most recent" in message:  # a worker's: its last own line
            lines = [told for line in lines if (told := _python(line))][-1:] or lines
        for line in lines:
            plain = line
            for noise in (_CONDITION, _WRAPPING, _CLASS, _CONDITION):
                plain = noise.sub("", plain).strip()
            if plain:
                return plain if len(plain) <= _LENGTH_MAX else f"{plain[:_LENGTH_MAX]}…"
    return ""


def _python(line: str) -> str:
    """The error that a traceback ends with; an error of ours says what it is itself."""
    found = _PYTHON_ERROR.match(line)
    if found is None:
        return ""
    ours = line.startswith("concordant.")
    return found[2] if ours and found[2] else ": ".join(filter(None, found.groups()))


def chain_of_text(text: str) -> list[str]:
    """The messages of a stack that was printed: of an error without its objects, or of a log."""
    text, _, stack = text.partition("JVM stacktrace:")
    messages = [re.split(r"\n\s+at ", text, maxsplit=1)[0]]
    for found in re.finditer(
        r"^\s*Caused by: (.+(?:\n(?!\s+at |\s*\.\.\.|Caused).+)*)", stack, re.M
    ):
        messages.append(found[1])
    return messages


def of_log(text: str) -> Sentence:
    """Why Spark did not start, from what it printed."""
    lines = [line.strip() for line in text.splitlines() if not line.startswith("\tat ")]
    known = sentence(lines)
    if known.hint:
        return known
    told = [line for line in lines if _FATAL.search(line)]
    return Sentence(innermost([_FATAL.sub("", told[-1])]) if told else "")


def _path(text: str) -> str:
    """A path as people write it: no scheme, no folder of an attempt."""
    plain = re.sub(r"^file:/*(?=/)", "", text).split("/_temporary/")[0]
    return unquote(plain) if "/" in plain else plain
