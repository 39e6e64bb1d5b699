"""Finding a Java: fake installations in a folder, as people have them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from ensure_java import install_command
from lines import names

from zkgroup.errors import Remedy, UsageError
from zkgroup.java_runtime import HINT, find_java, java_version


@pytest.fixture
def install(tmp_path: Path) -> Callable[..., Path]:
    """``install(name, release=…, prints=…)`` makes a folder like a Java's, and returns it."""

    def make(name: str, *, release: str | None = None, prints: str = "") -> Path:
        home = tmp_path / name
        (home / "bin").mkdir(parents=True)
        java = home / "bin" / "java"
        java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{prints}\nEND\n")
        java.chmod(0o755)
        if release is not None:
            (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
        return home

    return make


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """``only(home, path)`` makes these the only Javas of this machine."""

    def choose(home: Path | None, path: Path | None) -> None:
        if home is None:
            monkeypatch.delenv("JAVA_HOME", raising=False)
        else:
            monkeypatch.setenv("JAVA_HOME", str(home))
        monkeypatch.setenv("PATH", "" if path is None else f"{path / 'bin'}:/bin:/usr/bin")

    return choose


@pytest.mark.parametrize(
    ("prints", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_392"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21-ea" 2023', 21),
        ("Segmentation fault", None),
    ],
)
def test_version_is_read_from_what_java_prints(install: Callable[..., Path], prints: str, version: int | None) -> None:
    """Without a release file the version comes from ``java -version``, old numbering included."""
    assert java_version(install("j", prints=prints) / "bin" / "java") == version


def test_version_is_read_from_the_release_file(install: Callable[..., Path]) -> None:
    """The release file is believed without starting a virtual machine."""
    assert java_version(install("j", release="21.0.2", prints='version "8"') / "bin" / "java") == 21


def test_java_home_comes_first(install: Callable[..., Path], only: Callable[..., None]) -> None:
    """A recent Java in JAVA_HOME wins over a recent one on the PATH."""
    home, path = install("home", release="17.0.1"), install("path", release="21.0.1")
    only(home, path)
    assert find_java() == home / "bin" / "java"


def test_too_old_a_java_home_is_passed_over(install: Callable[..., Path], only: Callable[..., None]) -> None:
    """A JAVA_HOME for other programs' sake does not hide the recent Java on the PATH."""
    path = install("path", release="17.0.1")
    only(install("home", release="1.8.0_392"), path)
    assert find_java() == path / "bin" / "java"


def test_only_an_old_java(install: Callable[..., Path], only: Callable[..., None]) -> None:
    """The line says which Java was found, how old it is, and what to type."""
    home = install("home", release="11.0.2")
    only(home, home)
    with pytest.raises(UsageError) as caught:
        find_java()
    assert names(str(caught.value), 17, home / "bin" / "java", 11)
    assert caught.value.remedy == Remedy(HINT)


def test_no_java(only: Callable[..., None]) -> None:
    """Without any Java the line says so, and nothing of versions."""
    only(None, None)
    with pytest.raises(UsageError) as caught:
        find_java()
    assert re.findall(r"\d+", caught.value.message) == ["17"]
    assert caught.value.remedy == Remedy(HINT)


def test_the_command_is_this_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the Makefile runs is that of the package manager that is there."""
    for tool in ("dnf", "sh"):
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_command() == ("dnf", "install", "-y", "java-17-openjdk-headless")


def test_the_command_names_a_package_that_this_debian_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where apt has no Java 17 the next release that it has is named."""
    (tmp_path / "apt-get").write_text("#!/bin/sh\n")
    (tmp_path / "apt-cache").write_text("#!/bin/sh\necho openjdk-25-jre-headless\necho openjdk-21-jre-headless\n")
    for tool in tmp_path.iterdir():
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_command() == ("apt-get", "install", "-y", "--no-install-recommends", "openjdk-21-jre-headless")


def test_no_command_without_a_known_package_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then the Makefile only says what is missing."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert install_command() is None
