"""What a look at groups finds, as data.

``snapshot`` (``read_group``, ``read_groups``: one look, in ZooKeeper and in Kafka) with ``reading`` (which nodes are
asked for, round by round), ``members`` (id nodes), ``stored`` (offset nodes, as the reference reads them), ``asking``
(brokers, all within one time-out), ``joining`` (pure: nodes → snapshot), ``ownership`` (what is wrong with the
owners); ``listing`` (rows).
"""
