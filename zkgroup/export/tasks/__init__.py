"""The work of Spark's executors. With ``model`` and ``stores`` this is all of the export that travels to them.

``export_task`` (reads ranges, writes files, accounts for every offset) with ``task_data`` (its input and its answers),
``task_results`` (answers before the job ends) and ``parquet_files`` (many open files, in bounded memory). Columns are
made by ``clients.kafka.arrow_columns``.
"""
