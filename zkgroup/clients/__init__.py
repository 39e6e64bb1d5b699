"""The clients of ZooKeeper and Kafka. Nothing else opens a connection to either."""

import logging

# As libraries do: without a handler nothing is printed.
logging.getLogger("zkgroup").addHandler(logging.NullHandler())
