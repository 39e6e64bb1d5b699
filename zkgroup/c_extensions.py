"""zkgroup's C extensions, which are absent where no compiler was. ``ZKGROUP_NATIVE=0`` turns them off."""

from __future__ import annotations

import importlib.util
import os
import sys
from types import ModuleType
from typing import Final
from zipimport import zipimporter

#: Reads messages.
READER: Final = "zkgroup.clients.kafka._native"
#: Decodes Avro.
AVRO: Final = "zkgroup.schemas._avro"


def avro_module() -> ModuleType | None:
    """The extension for Avro; None where it is turned off, or absent, or made for another platform."""
    try:
        return import_extension(AVRO)
    except (ImportError, OSError):
        return None


def file_name(extension: str) -> str:
    """Of an extension, by its whole name: from the folder or zip on that has the package."""
    return f"{extension.replace('.', '/')}.abi3.so"


def import_extension(extension: str) -> ModuleType:
    """Import an extension by its whole name. The system loads no library out of a zip, as which the code of an export
    travels to a cluster's executors: there a copy is loaded, which is removed at once. Raises ``ModuleNotFoundError``
    where it is absent or turned off, ``ImportError`` or ``OSError`` where it does not load."""
    if os.environ.get("ZKGROUP_NATIVE") == "0":
        raise ModuleNotFoundError(f"{extension} is turned off")
    packed = __spec__.loader
    if extension in sys.modules or not isinstance(packed, zipimporter):
        return importlib.import_module(extension)
    import tempfile  # takes 5 ms, and is for executors alone

    file = file_name(extension)
    try:
        library = packed.get_data(file)  # however the zip is named
    except OSError as error:
        raise ModuleNotFoundError(str(error)) from error
    with tempfile.NamedTemporaryFile(suffix=file.rpartition("/")[2]) as copy:
        copy.write(library)
        copy.flush()
        spec = importlib.util.spec_from_file_location(extension, copy.name)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
    module.__file__ = f"{packed.archive}/{file}"
    sys.modules[extension] = module
    return module
