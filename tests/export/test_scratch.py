"""Scratch folders of exports: gone with the export, and after a kill with the next one."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from zkgroup.export.spark.scratch import PREFIX, ScratchFolder

OWNER = """
import sys
from zkgroup.export.spark.scratch import ScratchFolder
folder = ScratchFolder.make()
(folder.path / "local").mkdir()
(folder.path / "local" / "block").write_bytes(b"x" * 1000)
print(folder.path, flush=True)
sys.stdin.read()
folder.remove()
"""


@pytest.fixture(autouse=True)
def _own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary files are in a place of the test's own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def owner() -> tuple[subprocess.Popen[str], Path]:
    """A process with a folder."""
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_what_a_killed_process_left_goes_and_what_is_in_use_stays(tmp_path: Path) -> None:
    """The next one removes it; never a folder whose process lives, and none that it did not make."""
    killed, left = owner()
    alive, used = owner()
    (tmp_path / f"{PREFIX}unknown").mkdir()
    (tmp_path / f"{PREFIX}abc.log").write_text("a log that was kept")
    (tmp_path / f"{PREFIX}link").symlink_to(left)
    killed.send_signal(signal.SIGKILL)
    killed.communicate(timeout=10)
    assert (left / "local" / "block").is_file()
    folder = ScratchFolder.make()
    assert not left.exists()
    assert (used / "local" / "block").is_file()
    kept = {f"{PREFIX}unknown", f"{PREFIX}abc.log", f"{PREFIX}link", used.name, folder.path.name}
    assert {path.name for path in tmp_path.iterdir()} == kept
    folder.remove()
    alive.communicate("", timeout=10)
    assert alive.returncode == 0
    assert not used.exists()
    assert not folder.path.exists()
