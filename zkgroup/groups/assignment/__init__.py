"""Assignments: ``strategy_inference`` infers the strategy of the live owners, ``what_if`` predicts the assignment of a
group as it would be, also where members differ, ``assignment_plan`` reads the group for it and compares, and
``trigger_rebalance`` makes a group rebalance.
"""
