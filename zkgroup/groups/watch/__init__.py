"""Groups over time.

``watch`` (``GroupWatch``: a thread that looks whenever something has changed) with ``live`` (nodes kept up to date by
watches) and ``polling`` (a thread that asks brokers); ``timeline`` (looks and events, as data), ``happenings`` (pure:
look to look → events), ``trends`` (rates, the course of lag), ``recording`` (both in a file of lines), ``picture``
(pure: a timeline as SVG).
"""
