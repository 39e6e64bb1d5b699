"""Operations on consumer groups.

Its packages are layers, which ``tests/test_layers.py`` keeps:

    snapshot ← {offset_files, watch, changes} ← assignment ← {findings, monitoring}

``group_model`` has the types that they share, ``group_choices`` the values of options that they know,
``partition_scope`` the partitions that a user names.
"""
