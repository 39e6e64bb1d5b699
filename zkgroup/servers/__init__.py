"""The only doors to the outside: ZooKeeper and Kafka."""
