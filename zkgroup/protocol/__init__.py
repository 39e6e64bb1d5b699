"""The registry and the protocol, as the Scala consumer defines them. Pure: no I/O, no clock, no threads."""
