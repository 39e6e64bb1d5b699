"""Copying, renaming, deleting groups in both stores.

``manage`` (plans; pure) and ``manager`` (``Manager``), ``some_topics``, ``unsubscribing`` (the guard beside members
at work), ``debris``, ``restoring`` (undoing it from a backup).
"""
