"""The plain files behind a DataFrame, as Spark has listed them; or why there are none.

Asks the JVM: whether anything comes between files and DataFrame, which files they are, how long,
and by which options they are read. A file that is named twice is listed twice, as Spark reads it
twice. Not all that Spark lists it reads: `is_read` says what. Opens no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame

FORMATS = ("Parquet", "CSV")

FILE_COUNT_MAX = 1_000
"""Files that are looked at before the job starts."""

_WHICH = ("path", "paths", "pathglobfilter", "recursivefilelookup", "modifiedbefore")
LISTING = frozenset({*_WHICH, "modifiedafter"})
"""Options that say which files are read, not how."""

_FORGIVING = ("spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles")


@dataclass(frozen=True)
class Listed:
    """Files of this machine, and how Spark would read them."""

    form: str
    paths: tuple[str, ...]
    """Also of those that Spark does not read."""
    size: int
    """The bytes of all files together when they were listed."""
    options: Mapping[str, str]
    """Of the reader, beside those that say which files; their names in small letters."""


def listed(frame: DataFrame) -> Listed | str:
    """The files that a DataFrame is, or why it is none."""
    plan = frame._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "LogicalRelation":
        return "it is no file as it is, but computed"
    relation = plan.relation()
    if relation.getClass().getSimpleName() != "HadoopFsRelation":
        return "it is no file"
    form = str(relation.fileFormat().toString())
    if form not in FORMATS:
        return "only Parquet and CSV files are read by workers"
    if not relation.partitionSchema().isEmpty():
        return "its folders carry values"
    if _is_cached(frame):
        return "Spark holds it in its cache"
    session: Any = frame.sparkSession
    if any(session.conf.get(name).lower() != "false" for name in _FORGIVING):
        return "Spark is to pass over files that it cannot read"
    place = relation.location()
    # Not those of the DataFrame, which tells each only once.
    found = place.inputFiles()
    if len(found) > FILE_COUNT_MAX:
        return f"{len(found)} files are more than {FILE_COUNT_MAX}"
    wrapped = session._jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(found)
    # All at once: each call to the JVM costs.
    urls = [urlsplit(one) for one in str(wrapped.mkString("\n")).split("\n") if one]
    if any(one.scheme not in ("", "file") for one in urls):
        return "its files are not on this machine"
    paths = tuple(unquote(one.path) for one in urls)
    return Listed(form, paths, place.sizeInBytes(), _options(relation))


def is_read(path: str) -> bool:
    """Does Spark read a file that it has listed? Summaries of Parquet, for one, it only lists.

    >>> is_read("/in/_metadata"), is_read("/in/_metadata.csv"), is_read("/in/_metadata=1.csv")
    (False, False, True)
    """
    name = path.rpartition("/")[2]
    return not name.startswith(".") and ("=" in name or not name.startswith("_"))


def _is_cached(frame: DataFrame) -> bool:
    """Also where it is another DataFrame over the same files that was cached."""
    level = frame.storageLevel
    return bool(level.useMemory or level.useDisk or level.useOffHeap)


def _options(relation: Any) -> dict[str, str]:
    told = str(relation.options().mkString("\0"))  # at once, too
    found = (one.split(" -> ", 1) for one in told.split("\0") if " -> " in one)
    return {name.lower(): value for name, value in found if name.lower() not in LISTING}
