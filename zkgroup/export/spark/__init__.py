"""Spark: started quietly, given tasks, cancelled, stopped. Only this package and ``tasks.task_results`` import pyspark.

``spark_context`` (a SparkContext, and its jobs) with ``jvm_gateway`` (its JVM, with the watchdog and the archive of
classes), ``spark_properties`` (with the master), ``spark_failures`` (Spark's messages → errors); ``readback`` (counts
the rows of an export).
"""
