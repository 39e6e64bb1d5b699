"""Emulators of other object stores, for tests, as processes: Google's (gcp-storage-emulator) and Azure's (Azurite)."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pyarrow.fs as pafs
import pytest
from object_store_server import HOST, serving

BUCKET = "lake"
# Azurite's own, as its README has them.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def google_uri(port: int, prefix: str) -> str:
    """``--to`` for ``prefix`` in the emulator's bucket."""
    endpoint = {"scheme": "http", "endpoint_override": f"{HOST}:{port}", "retry_limit_seconds": "3"}
    return f"gs://anonymous@{BUCKET}/{prefix}?{urlencode(endpoint)}"


def azure_uri(port: int, prefix: str) -> str:
    """The same of Azurite's container, with a signature for it (SAS) that permits all that exports do."""
    there, allowed = f"{HOST}:{port}", "racwdl"
    fields = {"sv": "2021-06-08", "sr": "c", "sp": allowed, "se": "2099-01-01T00:00:00Z"}
    signed = [allowed, "", fields["se"], f"/blob/{_ACCOUNT}/{BUCKET}", "", "", "", fields["sv"], "c", *[""] * 7]
    digest = hmac.new(base64.b64decode(_KEY), "\n".join(signed).encode(), hashlib.sha256).digest()
    options = {"enable_tls": "false", "blob_storage_authority": there, "dfs_storage_authority": there, **fields}
    signature = base64.b64encode(digest).decode()
    return f"abfs://{BUCKET}@{_ACCOUNT}.dfs.core.windows.net/{prefix}?{urlencode(options | {'sig': signature})}"


@contextlib.contextmanager
def google_server(log: Path) -> Iterator[int]:
    """A running emulator of Google's store, with ``BUCKET``; its port."""
    start = [sys.executable, "-m", "gcp_storage_emulator", "start", "--host", HOST, "--in-memory"]
    start += ["--default-bucket", BUCKET, "--port"]
    with serving(lambda port: [*start, str(port)], log, _accepts, {}) as port:
        yield port


@contextlib.contextmanager
def azure_server(folder: Path) -> Iterator[int]:
    """A running Azurite 3.35, which npm installs into ``folder``, with ``BUCKET``; its port. Skips without npm."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("Azurite needs node and npm")
    install = [npm, "install", "--silent", "--no-optional", "--ignore-scripts", "--no-audit", "azurite@3.35.0"]
    subprocess.run(install, cwd=folder, check=True, timeout=240)
    start = [str(folder / "node_modules/.bin/azurite-blob"), "--silent", "--inMemoryPersistence", "--disableTelemetry"]
    start += ["--skipApiVersionCheck", "--blobHost", HOST, "--blobPort"]
    with serving(lambda port: [*start, str(port)], folder / "server.log", _accepts, {}) as port:
        there = {f"{service}_storage_authority": f"{HOST}:{port}" for service in ("blob", "dfs")}
        plain = {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
        pafs.AzureFileSystem(account_name=_ACCOUNT, account_key=_KEY, **there, **plain).create_dir(BUCKET)
        yield port


def _accepts(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection((HOST, port), 5).close()
        return True
    return False
