"""Plans: from the state of ZooKeeper, the brokers and the destination to the ranges that an export reads."""
