"""Assignments: the strategy of the live owners, plans of a group as it is or would be, and rebalances."""
