"""Options that many commands share.

The connection options stand before or after a command's name. They are declared once, here, and added to every command
that connects; what was given, on either side, is collected in ``Given``.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, TypeAlias

import typer

from zkgroup.config.setting_layers import ENV_AUTH_FILE, ENV_CLUSTER, ENV_TIMEOUT, ENV_ZOOKEEPER

from ._completion_values import complete_cluster, complete_group, complete_topic
from ._global_options import Given
from ._output import Output
from ._security_options import security_parameters

CONNECTION: Final = "Connection (before or after the command's name)"
LOGGING: Final = "Messages"

OutputOption: TypeAlias = Annotated[Output, typer.Option("--output", help="How rows are shown.")]
GroupArgument: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="The consumer group.", show_default=False, autocompletion=complete_group),
]
TopicsOption: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC",
        help="Only this topic; repeatable.",
        show_default=False,
        autocompletion=complete_topic,
    ),
]


def _collect(ctx: typer.Context, param: typer.CallbackParam, value: Any) -> Any:
    if value and param.name is not None:
        ctx.ensure_object(Given).add(param.name, value)
    return value


def _count(ctx: typer.Context, value: int) -> int:
    ctx.ensure_object(Given).verbosity += value
    return value


def _silence(ctx: typer.Context, value: bool) -> bool:
    given = ctx.ensure_object(Given)
    given.quiet = given.quiet or value
    return value


def _connection(*names: str, metavar: str, help: str, autocompletion: Any = None) -> Any:
    return typer.Option(
        *names,
        metavar=metavar,
        help=help,
        callback=_collect,
        autocompletion=autocompletion,
        expose_value=False,
        show_default=False,
        rich_help_panel=CONNECTION,
    )


def _declare_connection(
    zookeeper: Annotated[
        list[str] | None,
        _connection(
            "--zookeeper",
            "-z",
            metavar="CONNECT",
            help=f"ZooKeeper, as HOST:PORT,HOST:PORT/CHROOT. [env:{ENV_ZOOKEEPER}]",
        ),
    ] = None,
    zookeeper_auth_file: Annotated[
        list[str] | None,
        _connection(
            "--zookeeper-auth-file",
            metavar="FILE",
            help=f"USER:PASSWORD for ZooKeeper's access lists (digest), one a line. [env:{ENV_AUTH_FILE}]",
        ),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        _connection(
            "--cluster",
            "-c",
            metavar="NAME",
            help=f"A profile in config.toml, or sandbox[:NAME]. [env:{ENV_CLUSTER}]",
            autocompletion=complete_cluster,
        ),
    ] = None,
    bootstrap_server: Annotated[
        list[str] | None,
        _connection("--bootstrap-server", metavar="LIST", help="Brokers, instead of those registered in ZooKeeper."),
    ] = None,
    consumer_config: Annotated[
        list[str] | None, _connection("--consumer-config", metavar="FILE", help="A consumer.properties file.")
    ] = None,
    property: Annotated[
        list[str] | None,
        _connection(
            "--property",
            "-X",
            metavar="KEY=VALUE",
            help="A key of consumer.properties; kafka.NAME=VALUE is handed to librdkafka. Repeatable.",
        ),
    ] = None,
    connect_timeout: Annotated[
        list[float] | None,
        _connection(
            "--connect-timeout",
            metavar="SECONDS",
            help=f"How long to wait for ZooKeeper and brokers; 5 by default. [env:{ENV_TIMEOUT}]",
        ),
    ] = None,
) -> None: ...


def _declare_logging(
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            help="Say what is being done; -vv says more.",
            callback=_count,
            expose_value=False,
            show_default=False,
            rich_help_panel=LOGGING,
        ),
    ] = 0,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet",
            help="No warnings.",
            callback=_silence,
            expose_value=False,
            show_default=False,
            rich_help_panel=LOGGING,
        ),
    ] = False,
) -> None: ...


def _show_version(ctx: typer.Context, value: bool) -> bool:
    if value and not ctx.resilient_parsing:
        from .version import summary  # reads what is installed, which nothing else pays for

        print(summary())  # noqa: T201  # this is the command's output
        raise typer.Exit
    return value


def declare_root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the versions of zkgroup and of what it runs on, and leave.",
            is_eager=True,
            callback=_show_version,
        ),
    ] = False,
) -> None:
    """Operate Kafka consumer groups that live in ZooKeeper.

    Looking changes nothing. What moves or deletes offsets shows its plan first, and does it with --execute.

    \b
    zkgroup -c sandbox list-groups
    zkgroup -z zk1:2181,zk2:2181/kafka inspect-group billing
    """


def _parameters(declaration: Any) -> list[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(declaration)
    return list(typer.main.get_command(app).params)


def connection_parameters() -> list[Any]:
    """Fresh parameters for the connection options, security last."""
    return [*_parameters(_declare_connection), *security_parameters(_collect)]


def logging_parameters() -> list[Any]:
    """Fresh parameters for ``-v`` and ``--quiet``."""
    return _parameters(_declare_logging)
