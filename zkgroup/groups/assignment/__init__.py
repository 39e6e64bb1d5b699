"""``assign``: from a group to its plan.

``plan`` with ``explain`` (which strategy and release the live owners come from), ``whatif`` (a group as it would be),
``mixes`` (members that do not agree: all outcomes), ``beside`` (a plan beside the live owners); ``nudge``
(``--execute``: an ephemeral ``ids`` child that nobody counts, rest, verification).
"""
