"""The only doors to the outside: ZooKeeper and Kafka."""

import logging

# As libraries do: what nobody listens to is not printed.
logging.getLogger("zkgroup").addHandler(logging.NullHandler())
