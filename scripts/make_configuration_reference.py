"""The tables in ``docs/reference/configuration.md``, made from the table of settings.

Usage: ``make_configuration_reference.py docs/reference/configuration.md`` updates the page.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from zkgroup.config.settings_table import BY_KEY, OWN_PREFIX, RESERVED, SETTINGS, Section, Setting

BEGIN: Final = "<!-- generated: {} -->"
END: Final = "<!-- end of generated text -->"


def options_table(sections: Iterable[Section]) -> str:
    """Settings that are options, with their variables and keys of profiles, as Markdown."""
    head = ("option", "variable", "key of a profile", "default", "description")
    return _table(head, [_option_row(one) for one in SETTINGS if one.name and one.section in sections])


def keys_table(*, own: bool) -> str:
    """Keys of ``consumer.properties``, as Markdown; ``own``: zkgroup's own ones."""
    keys = [one for one in BY_KEY.values() if one.key.startswith(OWN_PREFIX) == own]
    return _table(("key", "default", "meaning"), [(f"`{one.key}`", _default(one), _meaning(one)) for one in keys])


def reserved_table() -> str:
    """librdkafka's properties that cannot be set, as Markdown."""
    return _table(("property", "instead"), [(f"`kafka.{name}`", remedy) for name, remedy in RESERVED.items()])


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def _option_row(setting: Setting) -> tuple[str, ...]:
    options = [setting.short, setting.option, f"--no-{setting.name}" if setting.kind == "bool" else ""]
    variables = [setting.variable] if setting.in_environment else []
    if setting.kind == "secret":
        variables.append(f"{setting.variable}_FILE")
    lists = (", ".join(f"`{name}`" for name in names if name) for names in (options, variables, setting.profile_keys))
    doc = f"{setting.doc} One of {', '.join(setting.choices)}." if setting.choices else setting.doc
    return (*lists, _default(setting), doc)


def _default(setting: Setting) -> str:
    if setting.shown_default:
        return setting.shown_default
    default = setting.default
    if default is None:
        return ""
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _meaning(setting: Setting) -> str:
    status = "ignored with a warning" if setting.is_ignored else "honoured"
    if setting.librdkafka is not None:
        status = f"mapped to librdkafka's `{setting.librdkafka.name}`"
    doc = f"as `{setting.option}`, which wins over it" if setting.name else setting.doc
    return f"{status}: {doc}" if doc else status


SECTIONS: Final = {
    "connection": lambda: options_table(["connection"]),
    "security": lambda: options_table(["brokers", "zookeeper"]),
    "keys": lambda: keys_table(own=False),
    "own keys": lambda: keys_table(own=True),
    "reserved": reserved_table,
}


def updated(text: str) -> str:
    """``text`` with its generated parts replaced. Raises ``ValueError`` if the markers of a part are missing."""
    for name, make in SECTIONS.items():
        before, begin, rest = text.partition(BEGIN.format(name))
        _, end, after = rest.partition(END)
        if not begin or not end:
            raise ValueError(f"no place for {name!r}")
        text = f"{before}{begin}\n\n{make()}\n\n{end}{after}"
    return text


def main(argv: list[str]) -> None:
    """Update the named file."""
    path = Path(argv[1])
    path.write_text(updated(path.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main(sys.argv)
