"""What monitoring systems read of groups: Burrow's status, lag history, Nagios checks, Prometheus metrics."""
