"""The command line. Each command is a module of its own here, imported when it is called.

To add one, write a module with a function of its name (or a ``typer.Typer`` called ``app`` for a command with
subcommands), and add it to ``COMMANDS``. The function takes ``ctx: typer.Context``; ``_context`` opens the servers for
it.
"""

from __future__ import annotations

import typer

from ._command_group import Lazy, ZkGroup
from ._shared_options import declare_root

COMMANDS = (
    Lazy("consume", "Print messages, as a member of a group or without one."),
    Lazy("list-groups", "List the groups in ZooKeeper and in Kafka, or watch them.", aliases=("list", "groups", "ls")),
    Lazy("inspect-group", "Diagnose a group: now, watched, or by its history.", aliases=("describe",)),
    Lazy("owners", "Show the owner of each partition of a group."),
    Lazy("offsets", "Show a group's committed offsets and lag.", aliases=("lag",)),
    Lazy("topics", "List topics, or describe one and the groups that read it."),
    Lazy("assign", "Predict the partition assignment, or trigger a rebalance."),
    Lazy("reset-offsets", "Reset a group's offsets: to a time, a file, a backup."),
    Lazy("backups", "List the backups of changes, or show one.", connects=False),
    Lazy("migrate-group", "Move a group's offsets to Kafka, back, or to another cluster."),
    Lazy("copy-group", "Copy a group's offsets to another group."),
    Lazy("rename-group", "Rename a group."),
    Lazy("delete-group", "Delete a group, some of its topics, or abandoned groups."),
    Lazy("unsubscribe", "Remove a group's offsets of unsubscribed topics."),
    Lazy("release-owners", "Remove owner nodes and members without a session."),
    Lazy("export", "Export a group's messages to Parquet or tables, exactly once."),
    Lazy("config", "Show and check the settings."),
    Lazy("sandbox", "Run ZooKeeper and Kafka servers on this machine.", connects=False),
    Lazy("completions", "Print the completion script for bash, zsh or fish.", connects=False),
    Lazy("version", "Show the versions of zkgroup and its libraries.", connects=False),
)


class Commands(ZkGroup):
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
