"""Spark: started quietly, given tasks, cancelled, stopped.

Only this package and ``tasks.task_results`` import pyspark.
"""
