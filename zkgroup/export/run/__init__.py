"""A run, from its plan to its commit; its states are the table in ``zkgroup.export``.

``run_export`` (an export from its first read to its last), ``planner`` (the plan for now), ``export_run`` (the table,
in code) with ``range_tasks`` (runs tasks, and accounts for their answers), ``publication`` (files get their names;
folders of runs that are over go); ``claim`` (lock, pointer, commit), ``export_member`` (the export as a member of its
group), ``run_context`` (the means of a run, and what it returns).
"""
