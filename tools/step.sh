#!/bin/sh
# Runs a command as one line of output: its name, and "ok" or everything the command had to say.
#
#   sh tools/step.sh types .venv/bin/mypy
set -u

name=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if "$@" >"$log" 2>&1; then
    echo "$name: ok"
else
    status=$?
    echo "$name: failed"
    cat "$log"
    exit "$status"
fi
