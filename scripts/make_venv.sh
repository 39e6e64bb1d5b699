#!/bin/sh
# Make the virtual environment VENV with zkgroup (editable) and everything for development in it.
# Usage: make_venv.sh VENV. $PYTHON chooses the Python; without it the first one that is recent enough is taken.
set -eu
venv=$1

recent='import sys; sys.exit(sys.version_info < (3, 11))'
python=
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if command -v "$candidate" >/dev/null 2>&1 && "$candidate" -c "$recent" >/dev/null 2>&1; then
        python=$candidate
        break
    fi
done
if [ -z "$python" ]; then
    echo "Python 3.11 or later is needed: install one, or name it: make PYTHON=/path/to/python3" >&2
    exit 2
fi

# An environment that was moved, or whose Python is gone, is made anew.
if ! "$venv/bin/python" -c "$recent" >/dev/null 2>&1 || ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    rm -rf "$venv"
    if ! "$python" -m venv "$venv"; then
        rm -rf "$venv"
        echo "Python cannot make virtual environments here: on Debian and Ubuntu, apt-get install python3-venv" >&2
        exit 2
    fi
fi
echo "installing zkgroup and its dependencies into $venv" >&2
if ! "$venv/bin/python" -m pip install -qq --disable-pip-version-check --editable '.[dev]'; then
    echo "the dependencies could not be installed: check the network, the proxy and pip's configuration" >&2
    exit 1
fi
