"""What is wrong with a group, and whether that is to wake somebody.

``findings`` (``judge``: findings, worst first) with ``kinds`` (every kind, each with a page), ``scene`` (how old
things are: a gap or a rebalance?), ``remedies``, and a module each for ``members``, ``owners``, ``offsets``, the
``cluster``, and what is ``hidden``; ``inspection`` (a look, explained and judged); ``progress`` (Burrow's rules,
pure), ``history`` (looks in SQLite), ``checking`` (the verdict of ``--check``), ``metrics`` (Prometheus' text).
"""
