"""A destination: its files, the log of its runs, and the owners of its topics.

``run_log`` (the files, the log of each group's runs, and the group that exports a topic), ``coverage`` (the offsets and
files that records account for), ``recorded_columns`` (of keys and values with a schema), ``table_format`` (how a run
becomes a part of what readers see: plain files), ``delta_tables``, ``iceberg_tables`` and ``table_columns`` (their
columns), ``file_check`` (a file's footer, and what is wrong with it).
"""
