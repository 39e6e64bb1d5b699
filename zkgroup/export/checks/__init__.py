"""Looking at exports: what was done, what is unfinished, and whether everything is there, once.

``history`` (``--history``, ``--status``), ``verify`` with ``accounts`` (what is said of a partition), and ``advice``
(what mends what was found).
"""
