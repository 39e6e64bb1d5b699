"""For monitoring systems: Burrow's status, lag history, Nagios checks, Prometheus metrics."""
