"""What tests of copies, renames and deletions share: reading groups, and applying plans of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from zkgroup.clients.kafka.client import KafkaSettings
from zkgroup.clients.zookeeper.registry import Registry
from zkgroup.groups.changes.applier import Applier
from zkgroup.groups.changes.group_plans import (
    WholeGroup,
    find_group,
    plan_group_copy,
    plan_group_deletion,
    read_whole_group,
)
from zkgroup.groups.changes.plan import Plan
from zkgroup.groups.group_model import Store
from zkgroup.protocol.operations import Acl


class Manager:
    """Reads groups, plans changes of whole ones, and applies them."""

    def __init__(self, registry: Registry | None, brokers: Callable[[], KafkaSettings], timeout: float) -> None:
        self.applier = Applier(registry, brokers, timeout)

    def find(self, group: str, store: Store | None, *, partly: bool = False) -> WholeGroup:
        return find_group(self.applier, group, store, partly=partly)

    def snapshot(self, group: str, store: Store | None) -> WholeGroup:
        return read_whole_group(self.applier, group, store)

    def plan_copy(self, source: WholeGroup, to: str, *, store: Store | None = None, is_rename: bool = False) -> Plan:
        return plan_group_copy(source, self.snapshot(to, store), is_rename=is_rename)

    def copy(self, plan: Plan, acls: Mapping[str, tuple[Acl, ...]] | None = None) -> None:
        self.applier.write(replace(plan, acls=acls or {}))

    def verify_copy(self, plan: Plan) -> None:
        self.applier.verify(plan)

    def delete(self, found: WholeGroup) -> None:
        self.applier.write(plan_group_deletion(found))

    def refuse_if_active(self, found: WholeGroup) -> None:
        self.applier.check(plan_group_deletion(found))
