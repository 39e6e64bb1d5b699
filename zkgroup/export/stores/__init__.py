"""Places for files: a folder, and what pyarrow's filesystems speak.

``store`` (what is asked of a place, and a folder), ``objects`` (the same of an object store) with ``filesystems``
(how these are opened, and what they say), ``packages`` (what
must be installed).
"""
