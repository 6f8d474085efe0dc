#!/bin/sh
# Installs a Debian package without a question, where that is possible: as root, with apt-get.
# Anywhere else it fails silently, and the caller says what to install.
#
#   sh tools/apt.sh openjdk-17-jre-headless
set -eu

[ "$(id -u)" = 0 ] || exit 1
command -v apt-get >/dev/null 2>&1 || exit 1

echo "installing $1" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && apt-get install -y --no-install-recommends "$1"; } >"$log" 2>&1; then
    tail -n 5 "$log" >&2
    exit 1
fi
