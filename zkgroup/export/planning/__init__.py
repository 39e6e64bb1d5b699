"""What is to be exported: from what ZooKeeper, the brokers and the destination tell to a plan.

``request`` (what is asked for), ``bounds`` (``--from``, ``--until``), ``group_state`` (what ZooKeeper and the brokers
tell), ``export_plan`` with ``mismatch`` (pure: facts → plan, and what is refused), ``backfill_plan`` (what a backfill
exports), ``notices`` (what is told of a plan), ``open_transactions`` (what waits behind them).
"""
