"""A destination: its files, the log of its runs, and who owns its topics.

``run_log`` (the records of each group's runs), ``topic_owners`` (which group exports a topic), ``coverage`` (pure: what
records account for), ``expected_files`` (pure: which files are to be there), ``strange_files`` (files in the way of a
run), ``footer`` and ``file_check`` (what one file says of itself, and what is wrong with it), ``parallel`` (many
requests at a time).
"""
