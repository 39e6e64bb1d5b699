"""Changes of groups: one ``Plan`` for each, made by a function, and one ``Applier`` for all plans.

| step | does | where |
|---|---|---|
| plan | rows for offsets (``OffsetChange``), nodes that go (``ZnodeRemoval``), why it is refused | ``reset_plan``, ``undo``, ``migration``, ``group_plans``, ``node_removals`` |
| check | the preconditions: an inactive group, readable offsets and access lists, brokers that delete groups | ``Applier.preconditions`` |
| back up | the overwritten offsets, and the nodes as they are | ``Applier.backup``, ``backup`` |
| write | each store by its writer, ZooKeeper first; everything is checked again just before | ``zookeeper_offset_writer``, ``znode_deletion``, ``kafka_writer`` |
| verify | everything is read again, and the logs of a reset | ``Applier.verify`` |

In ZooKeeper a change is a ``TransactionSeries``: batches that compare versions, fail once the group is active, and whose
outcome is found out after a lost connection. Groups by pattern (``inactive_groups``) and undone deletions (``undo``)
are decided group by group.
"""  # noqa: E501  # a table
