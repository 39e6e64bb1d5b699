"""``inspect-group --report``: a page about a group, of a real cluster; nothing in it is obeyed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from cli import run
from group_nodes import Groups, static
from lines import names
from resets import Kept

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.protocol.names import TopicPartition
from zkgroup.sandbox.local_cluster import Sandbox

HOSTILE = "<img src=x onerror=alert(1)>\"'&<b>"
TAGS = {
    *("html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "b", "div", "pre"),
    *("table", "thead", "tbody", "tr", "th", "td", "svg", "g", "rect", "path", "text"),
}
VOID = {"meta"}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "xmlns", "width", "height", "viewbox", "role"),
    *("aria-label", "x", "y", "rx", "d", "transform", "text-anchor"),
}


class Page(HTMLParser):
    """A page's text by its parts. Fails for tags and attributes that the page has no use for, and for tags that do not
    match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.parts: dict[str, str] = {}
        self._part = "head"
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, tag
        assert {name for name, _ in attrs} <= ATTRIBUTES, attrs
        if tag not in VOID and not (self.get_starttag_text() or "").endswith("/>"):
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] == "h2":
            self._part = data
        elif self._open and self._open[-1] != "style":
            self.parts[self._part] = " ".join([*self.parts.get(self._part, "").split(), *data.split()])


@pytest.fixture
def report(
    cluster: Sandbox, registry: Registry, kafka: KafkaSettings, groups: Groups, topic: str, tmp_path: Path
) -> tuple[Path, str]:
    """The page about an inactive group whose name, topics and backup mean harm, with two checks and a change before;
    the group."""
    key = TopicPartition(topic, 0)
    group = groups.make({}, {}, {(topic, 0): 4, (HOSTILE, 0): 3}, name=f"{HOSTILE}{topic}")
    args = (group, "-z", cluster.connect)
    history = ("--history-file", str(tmp_path / "history.sqlite3"))
    assert run("inspect-group", *args, "--check", *history).returncode != 3
    Kept(registry, kafka, group, "zookeeper").put({key: 2})
    assert run("reset-offsets", *args, "--topic", topic, "--to-latest", "--execute").returncode == 0
    Kept(registry, kafka, group, "zookeeper").put({key: 2})
    assert run("inspect-group", *args, "--check", *history).returncode != 3
    path = tmp_path / "report.html"
    done = run("inspect-group", *args, "--report", str(path), *history)
    assert (done.returncode, done.stdout, done.stderr.count("\n"), names(done.stderr, path)) == (0, "", 1, True)
    return path, group


def test_the_page(report: tuple[Path, str], cluster: Sandbox, topic: str) -> None:
    """Everything about the group is text of the page, names included; no tag and no attribute comes from them."""
    path, group = report
    text = path.read_text(encoding="utf-8")
    assert "http" not in re.sub(r'xmlns="http://www.w3.org/2000/svg"|http-equiv', "", text), "nothing is loaded"
    parts = Page(text).parts
    head, findings, history, timeline, *_ = parts.values()
    assert names(head, group, group, cluster.connect), "its title, and its place"
    assert HOSTILE in findings
    assert f"zkgroup -z {cluster.connect} " in findings, "commands can be pasted"
    assert names(history, 2), "snapshots"
    assert names(timeline, topic, "reset-offsets", 3), "the topic, and then the change"
    assert names(timeline, "reset-offsets", f"{topic}-0"), "and that its offset went back"
    assert names(timeline, HOSTILE, f"{HOSTILE}-0"), "the last commit"
    assert HOSTILE in parts["Partitions"]
    assert group not in parts["Members"]


def test_a_page_without_history(cluster: Sandbox, groups: Groups, topic: str, tmp_path: Path) -> None:
    """Members and their claims are there; what keeps a history is said. --verify still decides."""
    group = groups.make({"@_a": static({topic: 1})}, {(topic, 0): "@_a-0"}, {(topic, 0): 99})
    path = tmp_path / "report.html"
    done = run(
        "inspect-group", group, "-z", cluster.connect, "--report", str(path), "--verify", "--history-file",
        str(tmp_path / "none"),
    )  # fmt: skip
    assert done.returncode == 6
    parts = Page(path.read_text(encoding="utf-8")).parts
    _, _, history, timeline, *_ = parts.values()
    assert names(history, "inspect-group", group, "--check")
    assert timeline.count(f"{group}_a") >= 2, "it registers, and claims a partition"
    assert names(timeline, f"{group}_a", f"{topic}-0")
    assert f"{group}_a" in parts["Members"]
    assert f"{group}_a-0" in parts["Partitions"]


@pytest.mark.parametrize("more", [["--all"], ["--check"], ["--section", "members"], ["--watch"], ["--history"]])
def test_what_a_report_does_not_go_with(more: list[str], tmp_path: Path) -> None:
    """A report is about one group as it is now."""
    group = [] if more == ["--all"] else ["g"]
    done = run("inspect-group", *group, "--report", str(tmp_path / "x"), *more, "-z", "127.0.0.1:1")
    assert done.returncode == (3 if more == ["--check"] else 2)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def browser() -> Callable[..., bytes]:
    """Runs Chromium without a window, with a folder of its own; installed where that may be."""
    programs = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    if not any(map(shutil.which, programs)) and shutil.which("apt-get"):
        subprocess.run(
            ["apt-get", "install", "-y", "--no-install-recommends", programs[0]], capture_output=True, check=False
        )
    found = next(filter(None, map(shutil.which, programs)), None)
    if found is None:
        pytest.skip("there is no Chromium")
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=1000")

    def browse(*args: str) -> bytes:
        return subprocess.run([found, *options, *args], capture_output=True, timeout=120, check=True).stdout

    return browse


@pytest.mark.long
def test_the_page_in_a_browser(report: tuple[Path, str], browser: Callable[..., bytes], tmp_path: Path) -> None:
    """Chromium builds of it what was written, with no element more; it is light, dark or printed as it should be."""
    path, _ = report
    address = path.as_uri()
    dom = browser("--dump-dom", address).decode()
    assert "<img" not in dom
    assert Page(dom).parts == Page(path.read_text(encoding="utf-8")).parts
    shots = {}
    for scheme in ("0", "1"):
        shot = tmp_path / f"{scheme}.png"
        browser(
            f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={shot}", "--window-size=800,1200", address
        )
        shots[scheme] = shot.read_bytes()
    assert shots["0"] != shots["1"], "dark and light"
    printed = tmp_path / "page.pdf"
    browser("--blink-settings=preferredColorScheme=0", f"--print-to-pdf={printed}", "--no-pdf-header-footer", address)
    assert printed.read_bytes().startswith(b"%PDF")
