"""A member's world without servers: a model of ZooKeeper, a network that fails, brokers, readers, virtual time.

Everything is deterministic: the same seed and schedule give the same run.
"""
