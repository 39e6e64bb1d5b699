"""What the command line gave of the shared options: the context's object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from zkgroup.config.security_settings import SETTINGS
from zkgroup.config.setting_layers import Flags

_SECURITY: Final = tuple(setting.field for setting in SETTINGS)


@dataclass
class Given:
    """What the command line gave of the shared options, collected while it is parsed."""

    values: dict[str, list[Any]] = field(default_factory=dict)
    verbosity: int = 0
    quiet: bool = False

    def add(self, name: str, values: list[Any]) -> None:
        """Remember values in the order they were written."""
        self.values.setdefault(name, []).extend(values)

    @property
    def flags(self) -> Flags:
        """For the layering of settings."""
        given = {name: tuple(values) for name, values in self.values.items()}
        security = {name: tuple(map(str, given.pop(name))) for name in _SECURITY if name in given}
        return Flags(**given, security=security)
