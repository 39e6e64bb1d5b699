"""Plans: from the state of ZooKeeper, the brokers and the destination to the ranges that an export reads.

``export_request`` (an export's options), ``bounds`` (``--from``, ``--until``), ``group_state`` (the group in ZooKeeper
and its logs), ``export_plan`` with ``mismatch`` (pure: facts → plan, and refusals), ``backfill_plan``, ``notices``
(warnings about a plan), ``open_transactions`` (partitions behind them).
"""
