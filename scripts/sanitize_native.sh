#!/bin/sh
# Run the tests of the native reader, and of Avro, with the C extensions under the address and undefined-behaviour sanitizers.
# Usage: sanitize_native.sh [PYTEST ARGUMENT…]. Needs gcc. The extensions that are installed stay as they are.
set -eu
cd "$(dirname "$0")/.."
python=.venv/bin/python
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
include=$($python -c 'import sysconfig; print(sysconfig.get_paths()["include"])')
for source in clients/kafka/_native schemas/_avro; do
    gcc -shared -fPIC -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined \
        -Wall -Wextra -Wno-unused-parameter -I"$include" -o "$folder/${source##*/}.abi3.so" "zkgroup/$source.c"
done
# The sanitized extensions take the places of the installed ones; the servers that tests start do not load sanitizers.
cat > "$folder/sanitized.py" <<'END'
import importlib.util
import os
import sys
from pathlib import Path

os.environ.pop("LD_PRELOAD", None)
for package, name in (("zkgroup.clients.kafka", "_native"), ("zkgroup.schemas", "_avro")):
    whole = f"{package}.{name}"
    spec = importlib.util.spec_from_file_location(whole, Path(__file__).with_name(f"{name}.abi3.so"))
    sys.modules[whole] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[whole])
    setattr(importlib.import_module(package), name, sys.modules[whole])
END
[ $# -gt 0 ] || set -- tests/clients/test_reader_contract.py tests/clients/test_native_reader.py tests/schemas/test_avro_schema.py
# Python keeps memory until it ends, so leaks are not looked for.
LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)" PYTHONMALLOC=malloc \
    ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 PYTHONPATH=$folder \
    $python -m pytest -q -p no:cacheprovider -p sanitized "$@"
