"""Spark: started quietly, given tasks, cancelled, stopped. pyspark is imported here, and in ``tasks.answers`` alone.

``context`` (a SparkContext) with ``gateway`` (its JVM, and the guard beside it), ``classes`` (an archive of its
classes), ``job`` (a job in a thread), ``properties`` (what is set of Spark's), ``master`` (which Spark), ``failures``
(its words → errors), ``scratch`` (its folder); ``readback`` (counting what an export holds).
"""
