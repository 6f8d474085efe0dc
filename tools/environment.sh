#!/bin/sh
# Makes .venv with Concordant and the given extras in it, from Python 3.11 or later alone.
#
#   sh tools/environment.sh dev,spark,connect,nats
set -eu

here=$(dirname "$0")
extras=$1
enough='import sys; sys.exit(sys.version_info < (3, 11))'

python=
for name in python3 python3.13 python3.12 python3.11; do
    if "$name" -c "$enough" >/dev/null 2>&1; then
        python=$name
        break
    fi
done
if [ -z "$python" ]; then
    found=$(python3 --version 2>/dev/null || echo "no python3")
    echo "Found $found, and Concordant needs Python 3.11 or later: install one and run make again." >&2
    exit 2
fi

# A .venv whose interpreter is gone or too old is made anew.
if ! .venv/bin/python -c "$enough" >/dev/null 2>&1; then
    # Debian ships Python without ensurepip, in a package of its own.
    if ! "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then
        package=$("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')
        if ! sh "$here/apt.sh" "$package"; then
            echo "This Python cannot make virtual environments: install the package $package (or python3-venv) and run make again." >&2
            exit 2
        fi
    fi
    echo "making .venv with $("$python" --version)"
    "$python" -m venv --clear .venv
fi

echo "installing concordant[$extras] (the first time takes some minutes)"
.venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --editable ".[$extras]"
