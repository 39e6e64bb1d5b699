"""What ``contrib/`` has for other programs: each names metrics and options that exist, and its own program takes it."""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli import ZKGROUP
from documented_examples import parsed, without_shell

from zkgroup.groups.monitoring.prometheus_metrics import METRICS

CONTRIB = Path(__file__).resolve().parents[1] / "contrib"
ALERTS, DASHBOARD, CRONTAB = (CONTRIB / name for name in ("prometheus-alerts.yml", "grafana-dashboard.json", "crontab"))
UNITS = sorted(CONTRIB.glob("zkgroup-*"))
#: Ten minutes in which a group falls behind, its member is gone, and a partition stands still.
SERIES = {
    "zkgroup_up": "0x20",
    'zkgroup_consumergroup_max_lag_seconds{instance="i", consumergroup="g"}': "3600x20",
    'zkgroup_consumergroup_findings{instance="i", consumergroup="g", severity="critical"}': "1x20",
    'kafka_consumergroup_members{instance="i", consumergroup="g"}': "0x20",
    'kafka_consumergroup_lag_sum{instance="i", consumergroup="g", topic="t"}': "7x20",
    'zkgroup_consumergroup_partition_owned{instance="i", consumergroup="g", topic="t", partition="0"}': "0x20",
    'zkgroup_consumergroup_partition_status{instance="i", consumergroup="g", topic="t", partition="0"}': "4x20",
}
FIRING = {
    "ZkgroupCannotReadGroups",
    "ConsumerGroupIsBehind",
    "ConsumerGroupHasCriticalFindings",
    "ConsumerGroupHasNoMembers",
    "PartitionsHaveNoOwner",
    "PartitionsStandStill",
}


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


def expressions(found: object) -> Iterator[str]:
    """All that asks for metrics, in the dashboard."""
    if isinstance(found, dict):
        yield from (value for key, value in found.items() if key in ("expr", "query") and isinstance(value, str))
        for value in found.values():
            yield from expressions(value)
    elif isinstance(found, list):
        for value in found:
            yield from expressions(value)


def test_metrics_exist() -> None:
    """Alerts and dashboard name no metric that zkgroup does not have, and the panels have places of their own."""
    dashboard = json.loads(DASHBOARD.read_text())
    found = [*expressions(dashboard), *(rule["expr"] for rule in rules())]
    assert len(found) > 20
    named = {name for one in found for name in re.findall(r"\b(?:kafka|zkgroup)_\w+", one)}
    assert named <= METRICS.keys()
    assert len({rule["alert"] for rule in rules()}) == len(rules())
    cells = [
        (x, y)
        for panel in dashboard["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23


def test_commands_exist() -> None:
    """Each command of units, cron lines and alerts is parsed by the app, with all its options."""
    units = [read_unit(path) for path in UNITS]
    commands = [unit["Service"]["ExecStart"].replace("%I", "g") for unit in units if "Service" in unit]
    commands += re.findall(r"(?m)^(?:\S+ ){5}(zkgroup .*)$", CRONTAB.read_text())
    commands += [
        re.sub(r"\{\{.*?\}\}", "g", text)
        for rule in rules()
        if (text := rule["annotations"]["description"]).startswith("zkgroup ")
    ]
    assert len(commands) == 2 + 3 + sum("zkgroup " in r["annotations"]["description"][:8] for r in rules())
    for command in commands:
        assert parsed(without_shell(command)).startswith("zkgroup ")


def read_unit(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    return unit


def checked(program: str, *words: str, cwd: Path | None = None, **environment: str) -> str:
    """What a program says that must find nothing wrong; skips the test where it is not installed."""
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run(
        [program, *words],
        cwd=cwd,
        env=os.environ | environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_prometheus_takes_the_alerts(tmp_path: Path) -> None:
    """promtool finds nothing wrong with the rules, and those fire that are to fire."""
    alerts = [rule["alert"] for rule in rules()]
    test = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values} for series, values in SERIES.items()],
                "promql_expr_test": [
                    {
                        "expr": f'count(ALERTS{{alertstate="firing", alertname="{alert}"}}) or vector(0)',
                        "eval_time": "16m",
                        "exp_samples": [{"labels": "{}", "value": int(alert in FIRING)}],
                    }
                    for alert in alerts
                ],
            }
        ],
    }
    path = tmp_path / "test.yml"
    path.write_text(yaml.safe_dump(test))
    assert f"{len(alerts)} rules found" in checked("promtool", "check", "rules", str(ALERTS))
    checked("promtool", "test", "rules", str(path))


@pytest.mark.long
def test_grafana_takes_the_dashboard() -> None:
    """Grafana's own types, by its SDK for Go, have every field of it."""
    checked("go", "run", ".", str(DASHBOARD), cwd=Path(__file__).parent / "grafana")


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    """systemd finds nothing wrong with the units, where zkgroup is installed."""
    for path in UNITS:
        text = path.read_text().replace("ExecStart=zkgroup", f"ExecStart={ZKGROUP}")
        (tmp_path / path.name.replace("@.", "@billing.")).write_text(text)
    files = [str(path) for path in sorted(tmp_path.iterdir())]
    assert checked("systemd-analyze", "verify", "--man=no", *files) == ""


def test_cron_takes_the_lines() -> None:
    """crontab finds nothing wrong with them: Debian's with -n, cronie with -T."""
    if shutil.which("crontab") is None:
        pytest.skip("crontab is not installed")
    usage = subprocess.run(["crontab", "-h"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    checked("crontab", "-n" if "dry run" in usage.stdout else "-T", str(CRONTAB))
