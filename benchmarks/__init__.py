"""Benchmarks: zkgroup beside its peers on the same servers, in turn. ``python -m benchmarks --help``."""
