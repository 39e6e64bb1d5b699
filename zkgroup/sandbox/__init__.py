"""Real ZooKeeper and Kafka servers on this machine."""
