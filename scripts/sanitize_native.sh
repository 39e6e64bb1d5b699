#!/bin/sh
# Run the contract of both readers with the C extension under the address and undefined-behaviour sanitizers.
# Usage: sanitize_native.sh [PYTEST ARGUMENT…]. Needs gcc. The extension is put back as it was afterwards.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
library=zkgroup/clients/kafka/_native.abi3.so
folder=$(mktemp -d)
trap '[ ! -e "$folder/kept" ] || mv "$folder/kept" "$library"; rm -rf "$folder"' EXIT
include=$($python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
gcc -shared -fPIC -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined \
    -Wall -Wextra -Wno-unused-parameter -I"$include" -o "$folder/built" zkgroup/clients/kafka/_native.c
[ ! -e "$library" ] || mv "$library" "$folder/kept"
cp "$folder/built" "$library"
# The servers that tests start must not load the sanitizers, so the variable goes as soon as Python has begun.
cat > "$folder/unload_sanitizers.py" <<'END'
import os

os.environ.pop("LD_PRELOAD", None)
END
[ $# -gt 0 ] || set -- tests/clients/test_reader_contract.py
# Python itself keeps memory until it ends: leaks are looked for in no test of this kind.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" PYTHONMALLOC=malloc \
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 PYTHONPATH=$folder \
    $python -m pytest -q -p no:cacheprovider -p unload_sanitizers "$@"
