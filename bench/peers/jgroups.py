"""What JGroups needs: its jar from Maven Central, and our member of its groups, compiled.

The jar is fetched once, by the Ivy that comes with PySpark, into `out/jgroups`. Whatever is missing
is one sentence (`Unavailable`).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark

from bench.peers.environment import Unavailable, java, java_program

JGROUPS = "5.4.8.Final"
FOLDER = Path(__file__).resolve().parents[2] / "out" / "jgroups"
_SOURCE = Path(__file__).with_name("JGroupsMember.java")


def member() -> list[str]:
    """The command that a member of a group begins with: Java, the jar and our class."""
    java()
    jar = FOLDER / f"jgroups-{JGROUPS}.jar"
    FOLDER.mkdir(parents=True, exist_ok=True)
    if not jar.exists():
        (ivy,) = (Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")
        wanted = ["-dependency", "org.jgroups", "jgroups", JGROUPS, "-confs", "default"]
        into = [
            "-cache",
            str(FOLDER / "cache"),
            "-retrieve",
            f"{FOLDER}/[artifact]-[revision].[ext]",
        ]
        _run(
            [java_program(), "-jar", str(ivy), *wanted, *into, "-types", "jar"],
            hint="is it reachable?",
        )
    compiler = [java_program(), "--module", "jdk.compiler/com.sun.tools.javac.Main"]
    hint = "is it a whole JDK (Debian and Ubuntu: openjdk-17-jdk-headless)?"
    _run([*compiler, "-cp", str(jar), "-d", str(FOLDER), str(_SOURCE)], hint=hint)
    return [java_program(), "-Xmx512m", "-cp", os.pathsep.join((str(jar), str(FOLDER)))]


def _run(command: list[str], *, hint: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise Unavailable(
            f"JGroups {JGROUPS} could not be fetched from Maven Central and used "
            f"({said[-1].strip()[:200]}): {hint}"
        )
