#!/bin/sh
# Is there a Java that Spark can use (17, or 21 and later)? Silent if there is.
#
# Spark takes JAVA_HOME first and the PATH only without it, so a wrong JAVA_HOME is an error here
# even if a good Java is in the PATH. A missing Java is installed where tools/apt.sh can do it.
set -eu

here=$(dirname "$0")

java_of() {
    if [ -n "${JAVA_HOME:-}" ]; then echo "$JAVA_HOME/bin/java"; else echo java; fi
}

# The major version: 17 of "17.0.15", 8 of "1.8.0_402"; empty if there is no Java.
version_of() {
    "$1" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

good() {
    [ -n "$1" ] && { [ "$1" -eq 17 ] || [ "$1" -ge 21 ]; }
}

version=$(version_of "$(java_of)")
good "$version" && exit 0

if [ -n "${JAVA_HOME:-}" ]; then
    echo "JAVA_HOME holds ${version:+Java }${version:-no Java}, and Spark needs Java 17, or 21 and later: point JAVA_HOME to one, or unset it." >&2
    exit 2
fi

if sh "$here/apt.sh" openjdk-17-jre-headless; then
    version=$(version_of java)
    good "$version" && exit 0
fi

echo "Found ${version:+Java }${version:-no Java}, and Spark needs Java 17, or 21 and later: install one (Debian and Ubuntu: openjdk-17-jre-headless; macOS: brew install openjdk@17) or set JAVA_HOME." >&2
exit 2
