"""``zkgroup sandbox``: real servers on this machine, for trials and tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zkgroup.config.settings_table import Strategy
from zkgroup.errors import FilterSyntaxError, Notice, Remedy, UsageError, ZkgroupError
from zkgroup.sandbox.kafka_releases import DEFAULT_RELEASE

from ._completion import complete_release, complete_sandbox
from ._context import done, warn, working
from ._error_output import reader_is_gone
from ._output import print_rows
from ._shared_options import GlobalOptions, OutputOption, option, parse_key_values
from ._signals import StopRequest, before_start

if TYPE_CHECKING:
    from zkgroup.clients.kafka.log_offsets import LogRange
    from zkgroup.protocol.names import TopicPartition
    from zkgroup.sandbox.scala_member import MemberOptions

app = typer.Typer(
    add_completion=False,
    help="""Run ZooKeeper and Kafka servers on this machine, for trials and tests.

    \b
    zkgroup sandbox start --kafka 0.8.2.2
    zkgroup sandbox member orders --group billing --detach
    """,
    short_help="Run ZooKeeper and Kafka servers on this machine.",
    subcommand_metavar="COMMAND …",
)

COLUMNS = ("sandbox", "process", "release", "address", "pid", "state", "log")
SPARE = ("log", "pid", "release")

NameOption = Annotated[str, option("--name", metavar="NAME", help="The sandbox.", complete=complete_sandbox)]

#: The keys of consumer.properties for which a member has options.
_OPTIONS_OF_MEMBER = {
    "consumer.id": "--id",
    "group.id": "--group",
    "partition.assignment.strategy": "--strategy",
    "zookeeper.connect": "--name",
}
#: Properties by which a sandbox finds its brokers.
_OWN = frozenset(
    {"advertised.host.name", "advertised.listeners", "advertised.port", "broker.id", "host.name", "listeners", "port"}
    | {"zookeeper.connect"}
)

KafkaOption = Annotated[
    str, option("--kafka", metavar="VERSION", help="The brokers' release.", complete=complete_release)
]


@app.command(short_help="Start ZooKeeper and Kafka brokers.")
def start(
    ctx: typer.Context,
    name: NameOption = "default",
    kafka: KafkaOption = DEFAULT_RELEASE,
    brokers: Annotated[int, option("--brokers", metavar="N", min=1, max=3, help="The number of brokers.")] = 1,
    chroot: Annotated[str, option("--chroot", metavar="PATH", help="The cluster's path in ZooKeeper.")] = "",
    tick_ms: Annotated[
        int, option("--tick-ms", metavar="N", min=50, help="ZooKeeper's tick; session timeouts are 2 to 20 ticks.")
    ] = 500,
    zookeeper_port: Annotated[
        int | None, option(metavar="PORT", min=1, max=65535, help="ZooKeeper's port.", show_default="a free one")
    ] = None,
    broker_port: Annotated[
        int | None, option(metavar="PORT", min=1, max=65533, help="The first broker's port.", show_default="a free one")
    ] = None,
    broker_property: Annotated[
        list[str] | None, option(metavar="KEY=VALUE", help="Added to the brokers' server.properties; repeatable.")
    ] = None,
    secure: Annotated[
        bool, option("--secure", help="With TLS, users and access lists; Kafka 0.10.2.2 and later.")
    ] = False,
    kerberos: Annotated[
        bool, option("--kerberos", help="With a KDC, Kerberos and access lists; Kafka 0.9.0.1 and later.")
    ] = False,
    output: OutputOption = "table",
) -> None:
    """Start a ZooKeeper and Kafka brokers on free loopback ports.

    They run on until 'sandbox stop'. Other commands find them by --cluster sandbox, or --cluster sandbox:NAME.

    --secure creates an authority, certificates and passwords. ZooKeeper gets a port with TLS and client certificates,
    and users (SASL, DIGEST-MD5); only brokers may change their own nodes. The brokers get the listeners SSL (client
    certificates), SASL_SSL and CLIENTS (SASL_PLAINTEXT), both with PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. PLAINTEXT is
    for themselves and for Kafka's own old consumer. --cluster sandbox then uses SASL_SSL with SCRAM-SHA-512, and
    ZooKeeper over TLS with a user. The command prints the path of the profile, which is an example of one.

    --kerberos starts a KDC, which must be installed (Debian: krb5-kdc, krb5-admin-server). ZooKeeper, and the brokers'
    listener SASL_PLAINTEXT, take GSSAPI. --cluster sandbox uses a keytab; other clients need the printed KRB5_CONFIG.

    \b
    zkgroup sandbox start
    zkgroup sandbox start --name old --kafka 0.8.2.2 --brokers 3
    """
    from zkgroup.sandbox.local_cluster import Sandbox
    from zkgroup.sandbox.sandbox_security import KerberosRealm
    from zkgroup.sandbox.sandbox_state import process_rows

    properties = parse_key_values(broker_property or (), "--broker-property")
    if own := sorted(_OWN & properties.keys()):
        raise UsageError(
            f"--broker-property {own[0]} is the sandbox's own: it finds its brokers by it",
            "leave it out; --broker-port and --secure choose ports and listeners",
        )
    sandbox = Sandbox(
        name,
        kafka=kafka,
        brokers=brokers,
        chroot=chroot,
        tick_ms=tick_ms,
        owned=False,
        zookeeper_port=zookeeper_port,
        broker_port=broker_port,
        properties=properties,
        secure=secure,
        kerberos=kerberos,
    )
    with working(
        ctx, f"starting ZooKeeper and {'a broker' if brokers == 1 else f'{brokers} brokers'} of Kafka {kafka}"
    ):
        sandbox.start()
    print_rows(process_rows(sandbox.state), COLUMNS, output, spare=SPARE)
    called = "" if name == "default" else f":{name}"
    place = f"ZooKeeper {sandbox.connect}" if sandbox.connect else f"brokers {sandbox.bootstrap}, without ZooKeeper"
    done(ctx, f"use it with 'zkgroup --cluster sandbox{called} …': {place}")
    if sandbox.security is not None:
        done(ctx, f"its profile, next to all files that it needs: {sandbox.security.profile}")
    if isinstance(sandbox.security, KerberosRealm):
        done(ctx, f"for other clients: export KRB5_CONFIG={sandbox.security.config}")


@app.command()
def status(
    ctx: typer.Context,
    name: Annotated[
        str | None, option("--name", metavar="NAME", help="Only this sandbox.", complete=complete_sandbox)
    ] = None,
    output: OutputOption = "table",
) -> None:
    """Show the sandboxes and their processes.

    \b
    zkgroup sandbox status
    zkgroup sandbox status --name old --output json
    """
    from zkgroup.sandbox.sandbox_state import SandboxState, process_rows, read_states, running

    states = list(read_states()) if name is None else [running(name)]
    print_rows(
        [row for state in states if isinstance(state, SandboxState) for row in process_rows(state)],
        COLUMNS,
        output,
        spare=SPARE,
    )
    if not states:
        done(ctx, Notice("no sandbox runs", Remedy("start one", ("sandbox", "start"))))
    for state in states:
        if not isinstance(state, SandboxState):
            warn(ctx, [state])
        elif not state.is_alive:
            named = () if state.name == "default" else ("--name", state.name)
            ended = Notice(
                f"sandbox {state.name} has ended without being stopped", Remedy("stop it", ("sandbox", "stop", *named))
            )
            warn(ctx, [ended])


@app.command(short_help="Stop a sandbox and remove its data.")
def stop(
    ctx: typer.Context,
    name: NameOption = "default",
    all_of_them: Annotated[bool, option("--all", help="Every sandbox.")] = False,
    member: Annotated[
        str | None, option("--member", metavar="MEMBER", help="Only this detached member; the servers run on.")
    ] = None,
) -> None:
    """Stop a sandbox: its members leave, its servers end, its data is removed.

    \b
    zkgroup sandbox stop
    zkgroup sandbox stop --member audit_nightly
    """
    from zkgroup.sandbox.sandbox_state import not_running, sandbox_names
    from zkgroup.sandbox.sandbox_state import stop as stop_sandbox
    from zkgroup.sandbox.scala_member import stop_member

    if member is not None:
        if all_of_them:
            raise UsageError("--member names a member of one sandbox", "leave out --all")
        with working(ctx, "stopping the member"):
            stop_member(name, member)
        done(ctx, f"member {member} has left")
        return
    names = sandbox_names() if all_of_them else [name]
    stopped: list[str] = []
    failed: list[ZkgroupError] = []
    with working(ctx, "stopping what runs"):
        for one in names:
            try:
                stopped += [one] if stop_sandbox(one) is not None else []
            except ZkgroupError as error:
                failed.append(error)
    for one in stopped:
        done(ctx, f"sandbox {one} is stopped")
    warn(ctx, failed[:-1])
    if failed:
        raise failed[-1]
    if not stopped and not all_of_them:
        raise not_running(name, remedy=Remedy("see which do", ("sandbox", "status")))
    if not stopped:
        done(ctx, "no sandbox runs")


@app.command(short_help="Create a topic and fill it with numbered messages.")
def fill(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic; created if it is missing.")],
    name: NameOption = "default",
    partitions: Annotated[
        int | None, option("--partitions", metavar="N", min=1, max=10_000, help="Its partitions.", show_default="3")
    ] = None,
    count: Annotated[
        int, option("--messages", metavar="N", min=0, max=100_000_000, help="The number of messages to add.")
    ] = 1000,
    size: Annotated[
        int, option("--size", metavar="BYTES", min=0, max=900_000, help="The minimum size of each value.")
    ] = 0,
    values: Annotated[
        Path | None, option("--values", metavar="FILE", help="Add the lines of this file instead.")
    ] = None,
    output: OutputOption = "table",
) -> None:
    """Create a topic in a sandbox, and add numbered messages with keys.

    The values are 'message 0', 'message 1', and so on, in the partitions in turn. A second call continues the numbers.

    \b
    zkgroup sandbox fill orders
    zkgroup sandbox fill orders --partitions 6 --messages 10000 --size 100
    zkgroup sandbox fill web-orders --values orders.jsonl
    """
    with before_start():
        from zkgroup.clients.kafka.client import KafkaSettings
        from zkgroup.clients.zookeeper.registry import Registry
        from zkgroup.protocol.names import validate_topic
        from zkgroup.sandbox.sandbox_security import KerberosRealm, registry_settings, security_in
        from zkgroup.sandbox.sandbox_state import running
        from zkgroup.sandbox.topic_admin import fill_topic

    validate_topic(topic)
    options: dict[str, Any] = {"partitions": partitions, "size": size}
    if values is not None:
        try:
            options["values"] = values.read_bytes().splitlines()
        except OSError as error:
            raise UsageError(f"cannot read --values {values}: {error.strerror}", "name a file") from None
    # A signal's exception in librdkafka's delivery callback would get lost.
    with StopRequest() as stop:

        def work() -> dict[TopicPartition, LogRange]:
            state = running(name)
            security = security_in(state.secure)
            if not state.connect or isinstance(security, KerberosRealm):
                return fill_topic(KafkaSettings(state.bootstrap), topic, count, **options)
            with Registry(registry_settings(state.connect, security)) as registry:
                return fill_topic(registry, topic, count, **options)

        logs = stop.unless(work)
    columns = ("topic", "partition", "log_start", "log_end")
    rows = [dict(zip(columns, (*at, log.start, log.end), strict=True)) for at, log in sorted(logs.items())]
    print_rows(rows, columns, output)


@app.command(short_help="Run a member of a group with Kafka's own consumer.")
def member(
    ctx: typer.Context,
    group: Annotated[str, option("--group", metavar="GROUP", help="The group it joins.", show_default=False)],
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC…]", help="The topics it reads.", show_default=False)
    ] = None,
    name: NameOption = "default",
    whitelist: Annotated[str | None, option(metavar="RE", help="Read the topics that match instead.")] = None,
    blacklist: Annotated[str | None, option(metavar="RE", help="Read the topics that do not match.")] = None,
    streams: Annotated[int, option(metavar="N", min=1, help="Its consumer threads.")] = 1,
    strategy: Annotated[Strategy, option(help="The partition assignment strategy.")] = "range",
    release: Annotated[
        str, option(metavar="VERSION", help="The consumer's release, 0.8.2.2 to 1.1.1; any broker will do.")
    ] = DEFAULT_RELEASE,
    from_beginning: Annotated[
        bool, option("--from-beginning", help="Start at the earliest message if no offset is committed.")
    ] = False,
    records: Annotated[
        bool, option("--records", help="Print topic, partition, offset, key and value, separated by tabs.")
    ] = False,
    id: Annotated[
        str | None, option("--id", metavar="ID", help="Its consumer.id.", show_default="a random one")
    ] = None,
    property: Annotated[
        list[str] | None,
        option("--property", "-X", metavar="KEY=VALUE", help="A key of consumer.properties; repeatable."),
    ] = None,
    detach: Annotated[
        bool, option("--detach", help="Run in the background, until 'sandbox stop'; see its log in 'status'.")
    ] = False,
) -> int:
    """Run a member of a group with Kafka's own Scala consumer.

    It prints messages, one per line, until Ctrl-C. Then it commits and leaves the group.

    \b
    zkgroup sandbox member orders --group billing --from-beginning
    zkgroup sandbox member orders --group billing --release 0.8.2.2 --detach
    """
    from zkgroup.config import load_consumer_config
    from zkgroup.config.setting_files import Property
    from zkgroup.protocol.names import validate_group_id, validate_topic
    from zkgroup.protocol.topic_filter import TopicFilter
    from zkgroup.sandbox.sandbox_security import security_in
    from zkgroup.sandbox.sandbox_state import running
    from zkgroup.sandbox.scala_member import MemberOptions, check_id, start_member

    given = [
        (kind, value)
        for kind, value in (("topics", ",".join(topics or ())), ("whitelist", whitelist), ("blacklist", blacklist))
        if value
    ]
    if len(given) != 1:
        raise UsageError("a member reads topics, or a whitelist, or a blacklist", "give exactly one of them")
    kind, subscription = given[0]
    validate_group_id(group)
    for topic in topics or ():
        validate_topic(topic)
    if kind != "topics":
        try:
            TopicFilter("white_list", subscription)
        except UsageError as error:  # what only zkgroup does not support Java checks itself
            if isinstance(error, FilterSyntaxError):
                raise
    if id is not None:
        load_consumer_config([Property("consumer.id", id, "--id")])
    properties = parse_key_values(property or (), "--property")
    for key in sorted(_OPTIONS_OF_MEMBER.keys() & properties):
        raise UsageError(f"--property {key}: {_OPTIONS_OF_MEMBER[key]} says that", "leave it out")
    state = running(name)
    if not state.connect:
        words = topics if topics else [f"--{kind}", subscription]
        joining = ("-c", f"sandbox:{name}", "consume", *words, "--group", group, "--coordinator", "kafka")
        problem = f"sandbox {name} has no ZooKeeper, which the Scala consumer needs"
        raise UsageError(problem, Remedy("start a member in Kafka", joining))
    security = security_in(state.secure)
    options = MemberOptions(
        connect=state.connect,
        group=group,
        subscription=subscription,
        kind=kind,  # type: ignore[arg-type]  # one of the three above
        release=release,
        streams=streams,
        strategy=strategy,
        from_beginning=from_beginning,
        output="records" if records else "values",
        properties=properties,
        java_options=tuple(security.java_options(member=True)) if security else (),
    )
    if id is not None:
        options = replace(options, name=id)
    if detach:
        started = start_member(name, options)
        done(ctx, f"member {started.name} runs; it prints to {started.log}")
        return 0
    check_id(state, options)
    verbosity = ctx.ensure_object(GlobalOptions).verbosity
    return _run_in_foreground(options, options.folder(Path(state.folder)), verbosity)


def _run_in_foreground(options: MemberOptions, folder: Path, verbosity: int) -> int:
    """Run it, with its files in ``folder``, until it ends or a signal comes; returns the exit code."""
    from zkgroup.child_processes import Watchdog, childs_environment

    command = options.command(folder, level="INFO" if verbosity else "WARN")
    guard = Watchdog()
    guard.start()
    try:
        with StopRequest() as stop_request:
            child = subprocess.Popen(command, stdin=subprocess.DEVNULL, env=childs_environment())
            guard.send(f"+{child.pid}")
            asked = False
            while child.poll() is None:
                # The member notices a closed pipe only when it prints.
                if not asked and (stop_request or reader_is_gone(1)):
                    asked = True
                    child.terminate()
                try:
                    child.wait(0.1)
                except subprocess.TimeoutExpired:
                    continue
            guard.send(f"-{child.pid}")
        if not asked and child.returncode != 0:
            raise ZkgroupError(f"member {options.member_id} ended with status {child.returncode}", "see what it said")
        return stop_request.exit_code
    finally:
        guard.close()  # ends a running member, too
        shutil.rmtree(folder, ignore_errors=True)


@app.command(short_help="Show a group shared by Kafka's own consumer and zkgroup, and its export.")
def demo(
    keep: Annotated[bool, option("--keep", help="Leave the sandbox running.")] = False,
    total: Annotated[
        int, option("--messages", metavar="N", min=100, help="The number of messages to read and export.")
    ] = 40_000,
    name: Annotated[
        str | None, option("--name", metavar="NAME", help="The sandbox's name.", show_default="with --keep default")
    ] = None,
    kafka: KafkaOption = DEFAULT_RELEASE,
) -> None:
    """Show what zkgroup does, on servers of its own, in two minutes.

    The demo starts a ZooKeeper and a broker. Kafka's own consumer and two members of zkgroup share a group, and one of
    them leaves. An export writes the remaining messages to Parquet, and Spark reads them back. Every step is checked:
    the exit code is 6 if a check fails. Without --keep nothing is left running and nothing stays on the disk.

    \b
    zkgroup sandbox demo
    zkgroup sandbox demo --keep --messages 100000
    """
    from ._demo import run_demo

    name = name or ("default" if keep else f"demo-{os.getpid()}")
    run_demo(keep=keep, name=name, total=total, kafka=kafka)
