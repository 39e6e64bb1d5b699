"""Kubernetes on this machine: its real API server, and a node that runs what Spark asks it for.

The server is built at its first use from its sources (``kubernetes/``, with Go: some minutes, into the cache folder).
Where a cluster has a kubelet and containers, a thread here starts an executor pod's process, as the entry point of
Spark's image does, shows what became of it, and ends it when the pod is deleted. Nothing schedules, and nothing
else of a cluster is here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError

from spark_cluster import HOME
from support import wait_until

from zkgroup.child_processes import Watchdog
from zkgroup.config.setting_files import cache_dir
from zkgroup.java_runtime import find_java
from zkgroup.sandbox.processes import Process, free_port

GO: Final = shutil.which("go")
_SOURCES: Final = Path(__file__).parent / "kubernetes"
_PODS: Final = "/api/v1/namespaces/default/pods"
_EXECUTORS: Final = f"{_PODS}?labelSelector=spark-role%3Dexecutor"
_BUILD: Final = 1200.0  # seconds, on a slow machine
_TOKENS: Final = {"admin": "token-of-the-admin", "guest": "token-of-a-guest"}
_BACKEND: Final = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"


def _server() -> Path:
    """The program, for these sources."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_SOURCES.iterdir()))).hexdigest()[:12]
    program = cache_dir() / "tests" / f"kubernetes-{digest}" / "apiserver"
    if not program.exists():
        program.parent.mkdir(parents=True, exist_ok=True)
        made = program.with_name(f"apiserver-{os.getpid()}")
        assert GO is not None
        subprocess.run(
            [GO, "build", "-ldflags=-s -w", "-o", str(made), "."],
            cwd=_SOURCES,
            check=True,
            timeout=_BUILD,
            env={**os.environ, "GOFLAGS": "-buildvcs=false"},
        )
        made.rename(program)
    return program


class Kubernetes:
    """The API server. ``url``: what ``--master`` takes behind ``k8s://``."""

    def __init__(self, folder: Path, guard: Watchdog) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        key, tokens, port = folder / "accounts.key", folder / "tokens.csv", free_port()
        subprocess.run(["openssl", "genrsa", "-out", str(key), "2048"], check=True, capture_output=True, timeout=60)
        tokens.write_text(
            f'{_TOKENS["admin"]},admin,1,"system:masters"\n{_TOKENS["guest"]},guest,2,""\n', encoding="utf-8"
        )
        self.url = f"https://127.0.0.1:{port}"
        command = [
            *(str(_server()), str(folder / "etcd"), str(free_port())),
            *("--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={folder}"),
            *("--service-account-issuer=https://kubernetes", "--service-cluster-ip-range=10.0.0.0/24"),
            *(f"--service-account-key-file={key}", f"--service-account-signing-key-file={key}"),
            *("--authorization-mode=RBAC", f"--token-auth-file={tokens}", "--endpoint-reconciler-type=none"),
            "--disable-admission-plugins=ServiceAccount",
        ]
        self.process: Process = Process("server", guard).spawn(command, folder=folder, log=folder / "apiserver.log")

    def settings(self, user: str = "admin") -> str:
        """The path of a ``KUBECONFIG`` of ``admin`` or of ``guest``, who may do nothing, or of somebody unknown."""
        path = self.folder / f"{user}.json"  # which YAML is
        cluster = {"server": self.url, "certificate-authority": str(self.folder / "apiserver.crt")}
        path.write_text(
            json.dumps(
                {
                    "clusters": [{"name": "here", "cluster": cluster}],
                    "users": [{"name": user, "user": {"token": _TOKENS.get(user, "unknown")}}],
                    "contexts": [{"name": "here", "context": {"cluster": "here", "user": user}}],
                    "current-context": "here",
                }
            ),
            encoding="utf-8",
        )
        return str(path)

    def is_ready(self) -> bool:
        """Whether it answers, and pods can be created."""
        assert self.process.running, f"the API server has ended: see {self.folder}"
        with suppress(OSError, HTTPException, ValueError):  # also of a certificate that is not there yet
            return self.call("GET", "/api/v1/namespaces/default") is not None
        return False

    def call(self, method: str, path: str, body: object = None, kind: str = "application/json") -> Any:
        """Its answer, decoded; None where there is no such object."""
        context = ssl.create_default_context(cafile=self.folder / "apiserver.crt")
        headers = {"Authorization": f"Bearer {_TOKENS['admin']}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=context, timeout=10) as answer:
                return json.load(answer)
        except HTTPError as error:
            if error.code == 404:
                return None
            raise

    def pods(self) -> list[dict[str, Any]]:
        """Those of executors."""
        return list(self.call("GET", _EXECUTORS)["items"])

    def delete_pods(self) -> None:
        """All of them; a node lets go of those that it has."""
        self.call("DELETE", _EXECUTORS)


class Node:
    """Runs executor pods as processes of this machine, while the block lasts."""

    def __init__(self, cluster: Kubernetes, guard: Watchdog) -> None:
        self._cluster = cluster
        self._guard = guard
        self._running: dict[str, Process] = {}
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="kubernetes-node")

    def __enter__(self) -> Node:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        try:  # else they would be there for the next test
            wait_until(lambda: not self._leaving(), 30, "pods that are to go have gone")
        finally:
            self._end()

    def _leaving(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self._cluster.pods() if "deletionTimestamp" in pod["metadata"]]

    def _end(self) -> None:
        self._ending.set()
        self._thread.join(60)
        for process in self._running.values():
            process.stop(10)

    def kill_one(self) -> None:
        """SIGKILL an executor."""
        next(process for process in self._running.values() if process.running).signal(signal.SIGKILL)

    def _work(self) -> None:
        while not self._ending.wait(0.2):
            with suppress(OSError, HTTPException):
                pods = {pod["metadata"]["name"]: pod for pod in self._cluster.pods()}
                for name in self._running.keys() - pods.keys():
                    self._running.pop(name).stop(10)
                for name, pod in pods.items():
                    self._attend(name, pod)

    def _attend(self, name: str, pod: dict[str, Any]) -> None:
        process = self._running.get(name)
        if "deletionTimestamp" in pod["metadata"]:
            if process is not None:
                process.stop(10)
            self._cluster.call("DELETE", f"{_PODS}/{name}?gracePeriodSeconds=0")
        elif process is None:
            binding = {"kind": "Binding", "apiVersion": "v1", "metadata": {"name": name}}
            target = {"kind": "Node", "name": "here"}
            self._cluster.call("POST", f"{_PODS}/{name}/binding", {**binding, "target": target})
            self._running[name] = self._start(name, pod["spec"]["containers"][0])
            self._tell(name, "Running", {"running": {}})
        elif not process.running and pod["status"]["phase"] == "Running":
            code = process.returncode or 0
            terminated = {"exitCode": 128 - code if code < 0 else code}
            self._tell(name, "Failed" if code else "Succeeded", {"terminated": terminated})

    def _start(self, name: str, container: dict[str, Any]) -> Process:
        # As kubernetes/dockerfiles/spark/entrypoint.sh of Spark 4 does for "executor".
        assert container["args"] == ["executor"]
        env = {one["name"]: one.get("value", name) for one in container["env"]}
        env |= {"SPARK_EXECUTOR_POD_IP": "127.0.0.1", "SPARK_HOME": str(HOME), "PATH": os.environ["PATH"]}
        folder = self._cluster.folder / name
        folder.mkdir()
        env["SPARK_LOCAL_DIRS"] = str(folder)
        command = [
            *("env", "-i", *(f"{key}={value}" for key, value in env.items()), str(find_java())),
            *(value for key, value in env.items() if key.startswith("SPARK_JAVA_OPT_")),
            *(f"-Xmx{env['SPARK_EXECUTOR_MEMORY']}", "-cp", f"{HOME}/jars/*", _BACKEND),
            *("--driver-url", env["SPARK_DRIVER_URL"], "--executor-id", env["SPARK_EXECUTOR_ID"]),
            *("--cores", env["SPARK_EXECUTOR_CORES"], "--app-id", env["SPARK_APPLICATION_ID"]),
            *("--hostname", "127.0.0.1", "--resourceProfileId", env["SPARK_RESOURCE_PROFILE_ID"], "--podName", name),
        ]
        return Process("server", self._guard).spawn(command, folder=folder, log=folder / "log")

    def _tell(self, name: str, phase: str, state: dict[str, Any]) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for kind in ("running", "terminated"):
            if kind in state:
                state[kind]["startedAt"] = now
        one = {"name": "spark-kubernetes-executor", "image": "spark", "imageID": "spark", "restartCount": 0}
        status = {"phase": phase, "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}], "startTime": now}
        status["containerStatuses"] = [{**one, "ready": phase == "Running", "state": state}]
        self._cluster.call(
            "PATCH", f"{_PODS}/{name}/status", {"status": status}, "application/strategic-merge-patch+json"
        )


@contextmanager
def kubernetes(folder: Path) -> Iterator[tuple[Kubernetes, Watchdog]]:
    """The API server, which ends with the block, or with this process; and what ends others with them."""
    guard = Watchdog()
    guard.start()
    cluster: Kubernetes | None = None
    try:
        cluster = Kubernetes(folder, guard)
        wait_until(cluster.is_ready, 120, f"Kubernetes' API server in {folder} answers")
        yield cluster, guard
    finally:
        if cluster is not None:
            cluster.process.stop(20)
        guard.close()
