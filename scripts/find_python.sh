#!/bin/sh
# Print a Python that is recent enough: $PYTHON, or the first one of the usual names.
set -eu
for candidate in ${PYTHON:-python3 python3.14 python3.13 python3.12 python3.11}; do
    if command -v "$candidate" >/dev/null 2>&1 &&
        "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
        command -v "$candidate"
        exit 0
    fi
done
echo "Python 3.11 or later is needed: install one, or name it: make PYTHON=/path/to/python3" >&2
exit 2
