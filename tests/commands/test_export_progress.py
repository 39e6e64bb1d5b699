"""The bar of a running export on terminals of several widths."""

from __future__ import annotations

import sys

import pytest
from screen import Screen

SHOWN = """
import sys
from zkgroup.commands.export import ProgressBar
from zkgroup.export.run.run_export import Progress
bar = ProgressBar(shown=True)
bar.show(Progress("exporting", 23_456_789, 123_456_789, 1_234_000_000))
sys.stdin.read()
"""


@pytest.mark.parametrize("columns", [40, 63, 64, 80, 160])
def test_no_figure_is_cut(columns: int) -> None:
    """Messages, all of them, and bytes stand there whole; where there is room next to a bar."""
    with Screen(columns=columns, env={"COLUMNS": str(columns)}, runs=f"exec {sys.executable} -c '{SHOWN}'") as screen:
        shown = screen.until(lambda text: "23456789/123456789 1.2 GB" in text)
        assert ("exporting" in shown) == (columns >= 64)
