"""Operate Kafka consumer groups that live in ZooKeeper."""

__version__ = "0.1.0"
