"""One reading of groups from ZooKeeper, the group coordinator and the brokers, as data."""
