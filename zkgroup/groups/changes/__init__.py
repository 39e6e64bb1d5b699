"""Changes of groups: plans (pure), and what applies them: preconditions → backup → check → write → verify."""
