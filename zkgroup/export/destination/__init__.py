"""A destination: its files, the log of its runs, the owners of its topics, and its tables."""
