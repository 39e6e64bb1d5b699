"""A destination as a whole: its files, its runs, and what they account for.

``lake`` (runs and files) with ``coverage`` (pure: what runs cover) and ``decided`` (which of them count); ``book``
(one group's look at what all groups have exported) with ``ahead`` (pure: around what backfills hold), ``overlap``
(whether files hold what is to be exported) and ``clusters`` (whose logs these are); ``holdings`` (pure: what all runs
hold) with ``replacing`` (pure: files in the place of missing ones); ``footer`` and ``judging`` (what one file says of
itself, and what is wrong with it), ``strays`` (files without an export's name); ``layout_of_files`` and ``adopting``
(where manifests are gone), ``leftovers`` (runs that were never decided) and ``begun`` (where they were to begin).
"""
