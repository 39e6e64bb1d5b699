"""A destination: its files, the log of its runs, and the owners of its topics.

``run_log`` (the records of each group's runs), ``topic_owners`` (the group that exports a topic), ``coverage`` (pure:
the offsets that records account for), ``expected_files`` (pure: the files that records name), ``strange_files`` (files
in the way of a run), ``footer`` and ``file_check`` (a file's footer, and what is wrong with it).
"""
