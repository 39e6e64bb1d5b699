"""The data of exports: offsets and their intervals, plans, records, layouts, addresses. Pure.

``plan_types`` (the parts of a plan), ``accounting`` (intervals; what became of every offset), ``layout`` (folders,
names, time zones), ``address`` (``--to``), ``run_record`` (a run, its record, the pointer, all as JSON).
"""
