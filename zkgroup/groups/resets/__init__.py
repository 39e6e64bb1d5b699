"""Setting a group's offsets: a plan, then its application.

``reset`` (plans; pure) and ``resetting`` (``Resetter``: step by step) with ``targets`` (times → offsets) and
``standing`` (where the offsets stand); ``migrating`` (from one store to the other), ``checkpoint`` (all offsets of a
group, or none).
"""
