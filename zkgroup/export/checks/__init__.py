"""Reports on exports: ``run_reports`` (``--status``, ``--history``) and ``verify`` (``--verify``)."""
