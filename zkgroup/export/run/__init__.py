"""A run, from its plan to its commit; its states are the table in ``zkgroup.export``.

``run_export`` (an export from the first look to the last), ``planner`` (what it has to do now), ``export_run`` (the
table, in code) with ``range_tasks`` (has tasks run), ``assembly`` (pure: what tasks tell → what became of the plan),
``publication`` (files get their names), ``leftover_runs`` (what runs that are over leave); ``claim`` (lock, pointer,
commit) with ``transaction_size``, ``export_member`` (the export as a member of its group), ``conflicts`` (what stops a
run), ``run_context`` (what it is carried out with), ``summary``.
"""
