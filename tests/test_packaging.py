"""What is installed is what is in the repository, as far as it is needed at work."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from zkgroup.groups.findings import KINDS

ROOT = Path(__file__).parent.parent


def test_a_wheel_has_everything(tmp_path: Path) -> None:
    """The commands, the pages that explain findings, man pages, and the reference's member for the sandbox."""
    tree = tmp_path / "tree"
    for name in ("zkgroup", "commands", "docs/findings", "docs/man"):
        shutil.copytree(ROOT / name, tree / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    build = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"
    made = subprocess.run(
        [sys.executable, "-c", build, str(tmp_path)], cwd=tree, capture_output=True, text=True, timeout=240, check=False
    )
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= {f"zkgroup/pages/{code}.md" for code in KINDS}
    assert names >= {f"zkgroup/commands/{path.name}" for path in (ROOT / "commands").glob("*.py")}
    assert names >= {str(path.relative_to(ROOT)) for path in (ROOT / "zkgroup").rglob("*.py")}
    assert names >= {"zkgroup/py.typed", "zkgroup/sandbox/ReferenceMember.java"}
    manual = {Path(name).name for name in names if "/share/man/man1/" in name}
    assert manual == {path.name for path in (ROOT / "docs" / "man").iterdir()}
