"""Spark: its start, its settings and its failures.

Only this package and ``tasks.task_results`` import pyspark.
"""
