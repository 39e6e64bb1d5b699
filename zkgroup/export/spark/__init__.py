"""Spark: started quietly, given tasks, cancelled, stopped. Only this package and ``tasks.task_results`` import pyspark.

``spark_context`` (a SparkContext) with ``jvm_gateway`` (its JVM, and the watchdog of that), ``spark_class_archive``,
``spark_job`` (a job in a thread), ``spark_properties``, ``spark_master``, ``spark_failures`` (Spark's messages →
errors); ``readback`` (counts the rows of an export).
"""
