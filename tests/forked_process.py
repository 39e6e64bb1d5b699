"""Processes of tests that are forked from one that has imported everything: SIGKILL and SIGSTOP are what they are, and
a start costs no imports."""

from __future__ import annotations

import multiprocessing
from typing import Final

PROCESSES: Final = multiprocessing.get_context("forkserver")
# What is on its path; modules of the tests a process imports itself.
PROCESSES.set_forkserver_preload(
    [
        "pytest",
        "pyarrow.dataset",
        "pyiceberg.catalog.sql",  # a second, in each export into tables
        "zkgroup.connector",
        "zkgroup.export.run.run_export",
        "zkgroup.export.tasks.export_task",
        "zkgroup.export.run.export_member",
        "zkgroup.export.checks.verify",
        "zkgroup.sandbox.local_cluster",
        "multiprocessing.spawn",
    ]
)
