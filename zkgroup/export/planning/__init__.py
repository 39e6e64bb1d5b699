"""Plans: from the state of ZooKeeper, the brokers and the destination to the ranges that an export reads.

``export_request`` (an export's options, with ``--from`` and ``--until``, and commands), ``group_state`` (the group in
ZooKeeper and its logs), ``export_plan`` with ``mismatch`` (facts → plan, and refusals), ``notices`` (warnings).
"""
