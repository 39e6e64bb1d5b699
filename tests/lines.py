"""What a line of text names: tests pin facts in their order, and not the words between them."""

from __future__ import annotations

import re


def names(text: str, *facts: object) -> bool:
    """Whether one line of ``text`` has all of ``facts`` in this order: names, numbers, paths, commands. None is found
    inside a longer name or number: ``t-1`` is not in ``t-12``, nor ``1`` in ``t-1``."""
    wanted = ".*?".join(_bounded(str(fact)) for fact in facts)
    return any(re.search(wanted, line) for line in text.splitlines())


def _bounded(fact: str) -> str:
    before = r"(?<![\w.-])" if fact[:1].isalnum() else r"(?<![\w.])"
    return before + re.escape(fact) + (r"(?!\w|[.,-]\w)" if fact[-1:].isalnum() else "")
