"""Tests pin data, and sentences only where the documentation shows them: a message can be worded anew, and no test
breaks but those of the documentation."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
#: So many words in a row are a sentence.
LENGTH = 4
WORD = re.compile(r"""[("'`^]*([a-z][a-z'-]*)[),.;:!?"'`$]*""")


def text_of(node: ast.AST) -> str | None:
    """The text of a literal; values in it end a sentence."""
    if isinstance(node, ast.Constant):
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return value if isinstance(value, str) else None
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else " 0 " for part in node.values)
    return None


def sentences(text: str) -> Iterator[tuple[str, ...]]:
    """Each ``LENGTH`` words in a row, whatever stands beside them."""
    words = [match[1] if (match := WORD.fullmatch(word)) else None for word in text.lower().replace("\\", "").split()]
    for begin in range(len(words) - LENGTH + 1):
        found = tuple(word for word in words[begin : begin + LENGTH] if word)
        if len(found) == LENGTH:
            yield found


def pinned(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The literals of assertions and of ``match=``, and their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert) or (isinstance(node, ast.keyword) and node.arg == "match"):
            for part in ast.walk(node):
                if isinstance(part, ast.expr) and (text := text_of(part)) is not None:
                    yield part.lineno, text


def test_no_test_pins_a_sentence_that_no_page_shows() -> None:
    product, shown = set[tuple[str, ...]](), set[tuple[str, ...]]()
    for path in (*(ROOT / "zkgroup").rglob("*.py"), *(ROOT / "commands").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            product.update(sentences(text_of(node) or ""))
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        shown.update(sentences(path.read_text("utf-8")))
    assert product & shown, "pages show some"
    hidden = product - shown
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for line, text in pinned(ast.parse(path.read_text("utf-8")))
        if not hidden.isdisjoint(sentences(text))
    ]
    assert found == [], "pin names, numbers and commands (lines.names), fields or classes instead"
