"""The data of exports: offsets and their intervals, plans, records, layouts, addresses. Pure."""
