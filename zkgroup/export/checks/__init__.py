"""Looking at exports: what was done, what is unfinished, and whether everything is there, once.

``run_history`` (``--history``), ``run_status`` (``--status``), ``verify`` (``--verify``) with ``mending`` (the commands
that mend what was found).
"""
