"""The command line. Each command is a module of its own here, imported when it is called.

To add one: write a module with a function (or a ``typer.Typer`` called ``app`` for a command with subcommands) and name
it in ``COMMANDS``. The function takes ``ctx: typer.Context`` and hands it to ``_context`` to get at the servers.
"""

from __future__ import annotations

import typer

from ._command_group import Lazy, ZkGroup
from ._shared_options import declare_root

COMMANDS = (
    Lazy("consume", "consume:consume", "Print messages, as a member of a group or without one."),
    Lazy(
        "list-groups", "list_groups:list_groups", "All groups, in ZooKeeper and in Kafka.", aliases=("list", "groups")
    ),
    Lazy("inspect-group", "inspect_group:inspect_group", "Everything about a group, judged.", aliases=("describe",)),
    Lazy("owners", "owners:owners", "Who owns each partition of a group."),
    Lazy("offsets", "offsets:offsets", "Where a group stands, and how far from the end.", aliases=("lag",)),
    Lazy("assign", "assign:assign", "Who would own what, now or if; makes a group rebalance."),
    Lazy("reset-offsets", "reset_offsets:reset_offsets", "Move a group's offsets: a time, a file, back again."),
    Lazy("migrate-group", "migrate_group:migrate_group", "A group's offsets to Kafka, or back, verified."),
    Lazy("copy-group", "copy_group:copy_group", "A group's offsets for another group."),
    Lazy("rename-group", "rename_group:rename_group", "A group's offsets under another name."),
    Lazy("delete-group", "delete_group:delete_group", "A group, topics of it, or all groups that are debris."),
    Lazy("unsubscribe", "unsubscribe:unsubscribe", "Remove a group's offsets of topics that it reads no more."),
    Lazy("release-owners", "release_owners:release_owners", "Remove owners and members that no session holds."),
    Lazy("export", "export:export", "A group's messages as Parquet files, each exactly once."),
    Lazy("config", "config:app", "The settings that are in force, and whether they work."),
    Lazy("sandbox", "sandbox:app", "Real ZooKeeper and Kafka servers on this machine.", connects=False),
    Lazy("completions", "completions:completions", "The completion script for bash, zsh or fish.", connects=False),
    Lazy("version", "version:version", "The versions of zkgroup and of what it runs on.", connects=False),
)


class Commands(ZkGroup):
    """All commands."""

    table = COMMANDS


app = typer.Typer(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    subcommand_metavar="COMMAND …",
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": 110},
)
app.callback()(declare_root)
