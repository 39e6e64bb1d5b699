"""What exports speak of, as data: offsets and their intervals, plans, manifests, layouts, destinations. Pure.

``words`` (the words of a plan), ``intervals``, ``accounting`` (what became of every offset), ``layout`` (folders,
names, time zones), ``destination`` (``--to``), ``rundata`` (plan, manifest, pointer) with ``documents`` (the same as
JSON; ``encoding``: what these have in common) and ``begun`` (where runs that came to nothing were to begin), ``shell``
(commands that are printed).
"""
