"""What is done on executors; with ``model`` and ``stores`` this is all of the export that travels to them.

``task`` (reading ranges, writing files, accounting for every offset) with ``taskdata`` (what it is told, and
answers), ``answers`` (told while it goes on), ``files`` (many open files, in bounded memory), ``staging`` (where
they grow), ``columns`` with ``json_text``, and ``late_messages``.
"""
