"""Streams to Parquet on Spark."""
