#!/bin/sh
# Make the virtual environment VENV with zkgroup (editable) and everything for development in it.
# Usage: make_venv.sh VENV
set -eu
venv=$1
python=$("$(dirname "$0")/find_python.sh")

# An environment that was moved, or whose Python is gone, is made anew.
recent='import sys, pip; sys.exit(sys.version_info < (3, 11))'
if ! "$venv/bin/python" -c "$recent" >/dev/null 2>&1; then
    rm -rf "$venv"
    if ! "$python" -m venv "$venv"; then
        rm -rf "$venv"
        echo "Python cannot make virtual environments here: on Debian and Ubuntu, apt-get install python3-venv" >&2
        exit 2
    fi
fi
# man finds the pages of what is on PATH next to it.
mkdir -p "$venv/share/man/man1" && ln -sf "$(pwd)"/docs/man/*.1 "$venv/share/man/man1"
echo "installing zkgroup and its dependencies into $venv" >&2
if ! "$venv/bin/python" -m pip install -qq --disable-pip-version-check --editable '.[dev]'; then
    echo "the dependencies could not be installed: check the network, the proxy and pip's configuration" >&2
    exit 1
fi
