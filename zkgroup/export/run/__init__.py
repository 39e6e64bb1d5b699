"""A run, from its plan to its commit; its states are the table in ``zkgroup.export``."""
