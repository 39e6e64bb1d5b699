"""The shared options that a command line gives, before or after the command's name: the context's object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class GlobalOptions:
    """The shared options. ``values``: parameter to values in their order, collected while the line is parsed.
    ``answers``: question to the password that was typed."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    verbosity: int = 0
    quiet: bool = False
    answers: dict[str, str] = field(default_factory=dict, repr=False)

    def add(self, name: str, values: list[Any]) -> None:
        self.values.setdefault(name, []).extend(values)
