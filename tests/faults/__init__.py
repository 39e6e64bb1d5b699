"""The run on real servers: a group of processes under faults, and what must hold of it.

``PYTHONPATH=tests python -m faults --help``; ``make faults``. What it showed last: ``docs/explanation/guarantees.md``.

    judge.py      pure: what was delivered, committed and written → what is wrong
    reader.py     a member's process, which notes what it is handed
    group.py      its processes, each behind a proxy of its own, and what can be done to them
    cluster.py    the servers, their faults, and its observers: the writer, the watch on commits
    run.py        faults at random times, the end, the verdict
    mixed_run.py  cycles with Scala consumers
"""
