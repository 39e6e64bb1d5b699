"""Places for files: a folder, and object stores through pyarrow's filesystems.

``store`` (the interface, and a folder), ``object_store`` with ``filesystems`` (opens them, and translates their
errors), ``parallel`` (many requests at a time), ``optional_packages`` (what must be installed).
"""
