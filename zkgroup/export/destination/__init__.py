"""A destination: its files, the log of its runs, and the owners of its topics.

``run_log`` (the files, and the log of each group's runs), ``table_format`` (how a run becomes a part of
what readers see: plain files), ``delta_tables``, ``iceberg_tables`` and ``table_columns`` (their columns),
``topic_owners`` (the group that exports a topic), ``coverage`` (pure: the offsets that records account for),
``expected_files`` (pure: the files that records name), ``footer`` and ``file_check`` (a file's footer, and what is
wrong with it).
"""
