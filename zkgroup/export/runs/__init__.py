"""A run, from its plan to its commit; its states are the table in ``zkgroup.export``.

``run`` (an export from the first look to the last), ``planner`` (what it has to do now), ``steps`` (the table, in
code: each step can be repeated) with ``writing`` (the one that has tasks run), ``assembling`` (pure: what tasks
tell → what became of the plan) and ``publishing`` (files get their names), ``settling`` (an end by hand); ``claim``
(lock, pointer, commit) with ``transactions`` (how much they hold), ``membership`` (the export as a member),
``neighbours`` (other groups' runs under way), ``refusals`` (what stops a run), ``surroundings`` (whom it tells),
``summaries``.
"""
