"""A run, from its plan to its commit; its states are the table in ``zkgroup.export``.

``run_export`` (an export from its first read to its last), ``planner`` (the plan for now), ``export_run`` (the table,
in code) with ``range_tasks`` (runs tasks), ``assembly`` (pure: tasks' answers → the record's parts and files),
``publication`` (files get their names), ``leftover_runs`` (removes folders of runs that are over); ``claim`` (lock,
pointer, commit), ``export_member`` (the export as a member of its group), ``export_conflicts`` (errors that stop a
run), ``run_context``, ``export_summary``.
"""
