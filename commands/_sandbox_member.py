"""A member with Kafka's own consumer, as a child process that ends with the command."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from zkgroup.errors import FilterSyntaxError, UsageError, ZkgroupError

from ._error_output import reader_is_gone
from ._signals import StopRequest

if TYPE_CHECKING:
    from zkgroup.sandbox.scala_member import MemberOptions


def check_filter(expression: str) -> None:
    """Raise ``FilterSyntaxError`` for what Java refuses. Java checks filters that only zkgroup does not support."""
    from zkgroup.protocol.topic_filter import TopicFilter

    try:
        TopicFilter("white_list", expression)
    except FilterSyntaxError:
        raise
    except UsageError:
        return


def run_in_foreground(options: MemberOptions, name: str, verbosity: int) -> int:
    """Run it in the sandbox ``name`` until it ends or a signal comes; returns the exit code."""
    from zkgroup.child_environment import childs_environment
    from zkgroup.child_watchdog import Watchdog
    from zkgroup.sandbox.lifecycle import running

    folder = options.folder(Path(running(name).folder))
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
