"""Assignments: ``strategy_inference`` infers the strategy of the live owners, ``what_if`` predicts the assignment of a
group as it would be, with ``mixed_strategies`` where members differ, ``assignment_diff`` compares, ``assignment_plan``
reads the group for them, and ``trigger_rebalance`` makes a group rebalance.
"""
