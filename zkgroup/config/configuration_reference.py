"""The table of keys in ``docs/reference/configuration.md``, made from the keys themselves.

``python -m zkgroup.config.configuration_reference docs/reference/configuration.md`` updates the page, as a test checks.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from zkgroup.config.consumer_keys import KEYS, OWN_KEYS, RESERVED, Key, Status
from zkgroup.config.security_settings import SETTINGS

BEGIN: Final = "<!-- generated: {} -->"
END: Final = "<!-- end of generated text -->"


def key_table(keys: Iterable[Key]) -> str:
    """Markdown: a row for each key."""
    lines = ["| key | default | what zkgroup does with it |", "|---|---|---|"]
    lines += [f"| `{key.name}` | {_default(key)} | {_deed(key)} |" for key in keys]
    return "\n".join(lines)


def reserved_table() -> str:
    """Markdown: the librdkafka properties that cannot be set."""
    lines = ["| property | instead |", "|---|---|"]
    lines += [f"| `kafka.{name}` | {remedy} |" for name, remedy in RESERVED.items()]
    return "\n".join(lines)


def _default(key: Key) -> str:
    return key.default if key.default in ("none", "generated") or " " in key.default else f"`{key.default}`"


def _deed(key: Key) -> str:
    status: str = key.status.value
    if key.status is Status.MAPPED and key.target is not None:
        status = f"mapped to librdkafka's `{key.target.name}`"
    return f"{status}: {key.note}" if key.note else status


def security_table() -> str:
    """Markdown: the settings that secure connections."""
    lines = ["| option | variable | key of a profile | what |", "|---|---|---|---|"]
    for one in SETTINGS:
        option = f"`{one.option}`" + (f", `--no-{one.name}`" if one.kind == "truth" else "")
        variables = f"`{one.variable}`" + (f", `{one.variable}_FILE`" if one.kind == "secret" else "")
        help = f"{one.help} {', '.join(one.choices)}." if one.choices else one.help
        lines.append(f"| {option} | {variables} | {', '.join(f'`{key}`' for key in one.keys)} | {help} |")
    return "\n".join(lines)


SECTIONS: Final = {
    "keys": lambda: key_table(KEYS),
    "own keys": lambda: key_table(OWN_KEYS),
    "reserved": reserved_table,
    "security": security_table,
}


def updated(text: str) -> str:
    """``text`` with its generated parts made anew. Raises ``ValueError`` where a part has no place."""
    for name, make in SECTIONS.items():
        before, begin, rest = text.partition(BEGIN.format(name))
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"no place for {name!r}")
        text = f"{before}{begin}\n\n{make()}\n\n{end}{after}"
    return text


def main(argv: list[str]) -> None:
    """Update the file that is named."""
    path = Path(argv[1])
    path.write_text(updated(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv)
