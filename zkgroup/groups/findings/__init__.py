"""Findings: what is wrong with a group, how severe it is, and the commands that mend it."""
