"""Places for files: ``store`` (the interface, and a folder) and ``object_store`` (through pyarrow's filesystems)."""
