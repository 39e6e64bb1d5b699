"""What operators do to groups: look at them, judge them, move their offsets, plan their assignment, change them.

The folders are layers; each one's docstring names its modules. Beside them are ``model`` (what a look finds, as data),
``scope`` (which partitions are meant) and ``shell`` (commands that can be pasted):

    looking ← {files, watching, changing} ← {resets ← managing, planning ← judging}
"""
