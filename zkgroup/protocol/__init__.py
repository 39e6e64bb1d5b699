"""The registry and the protocol as the reference defines them. Pure: no I/O, no clock, no threads."""
