#!/bin/sh
# Run the tests of the native reader with the C extension under the address and undefined-behaviour sanitizers.
# Usage: sanitize_native.sh [PYTEST ARGUMENT…]. Needs gcc. The extension that is installed stays as it is.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
include=$($python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
gcc -shared -fPIC -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined \
    -Wall -Wextra -Wno-unused-parameter -I"$include" -o "$folder/_native.abi3.so" zkgroup/clients/kafka/_native.c
# The sanitized extension takes the place of the installed one; the servers that tests start do not load sanitizers.
cat > "$folder/sanitized.py" <<'END'
import importlib.util
import os
import sys
from pathlib import Path

os.environ.pop("LD_PRELOAD", None)
NAME = "zkgroup.clients.kafka._native"
spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name("_native.abi3.so"))
sys.modules[NAME] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules[NAME])
import zkgroup.clients.kafka

zkgroup.clients.kafka._native = sys.modules[NAME]
END
[ $# -gt 0 ] || set -- tests/clients/test_reader_contract.py tests/clients/test_native_reader.py
# Python keeps memory until it ends, so leaks are not looked for.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" PYTHONMALLOC=malloc \
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 PYTHONPATH=$folder \
    $python -m pytest -q -p no:cacheprovider -p sanitized "$@"
