"""A run, from its plan to its commit; its states are the table in ``zkgroup.export``.

``run`` (an export from the first look to the last), ``planner`` (what it has to do now), ``steps`` (the table, in
code: each step can be repeated; ``under_way``: what they share) with ``writing`` (the one that has tasks run),
``assembling`` (pure: what tasks tell → what became of the plan), ``deciding`` (the point of no return) and
``publishing`` (files get their names), ``settling`` and ``forgetting`` (an end by hand) with ``last_copies`` (what that
would lose), ``late`` (runs that were written, and that ZooKeeper does not know to be decided);
``claim`` (lock, pointer, commit) with ``transactions`` (how much they hold), ``membership`` (the export as a member),
``neighbours`` (other groups' runs under way), ``refusals`` (what stops a run), ``surroundings`` (whom it tells),
``summaries``.
"""
